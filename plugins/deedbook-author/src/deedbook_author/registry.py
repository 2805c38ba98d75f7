"""Check the abilities of a workspace: report all errors and notes at once, without starting anything.

An error keeps the workspace from starting. A note does not: for example an ability that no policy guards, a gate that
matches nothing, or an ability that no prompt finds.
"""

import sysconfig
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format.errors import BindingError, DomainError, fault
from deedbook.format.schema import suggest
from deedbook.plugins.plugins import Catalogue
from deedbook.plugins.policy_kinds import Kinds, installed_kinds
from deedbook.policy.charter import Charter
from deedbook.programs.process import BASE, has_program
from deedbook.workspace.declarations import AbilitySource, Workspace
from deedbook.workspace.workspace import survey_workspace
from deedbook_author.policy_coverage import find_unguarded, find_unmatched, lint_own_policies

from .findings import Finding, compile_surveyed
from .flow_notes import note_flows

_SHORTEST: Final = 8


@attrs.frozen
class Survey:
    """The checked *abilities* (ids) and the findings, errors first."""

    abilities: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(each.level == "note" for each in self.findings)


def survey(root: Path, catalogue: Catalogue, *, kernel: str, files: Sequence[str] = ()) -> Survey:
    """Check every ability of the workspace at *root*; with *files* (paths relative to it), report only on these.

    Plugins are imported for their declarations; none is constructed. Raises `BindingError` (``USAGE``) for a file that
    is no source of the workspace.
    """
    workspace, faults = survey_workspace(root)
    charter, errors = compile_surveyed(workspace, faults, catalogue, kernel=kernel)
    exact = (attrs.evolve(each, place=_exact(each, workspace)) for each in dict.fromkeys(errors))
    findings = [Finding.error(each) for each in exact]
    sources = sorted(workspace.abilities.values(), key=lambda found: found.id) if workspace else []
    found = _notes(sources, charter, workspace, installed_kinds(catalogue))
    findings += sorted(found, key=lambda each: each.level)  # errors come first
    if files:
        _check_files(files, workspace, findings)
        findings = [each for each in findings if _file(each.place) in files]
        sources = [source for source in sources if source.origin.document.path in files]
    return Survey(tuple(source.id for source in sources), tuple(findings))


def find_missing_programs(sources: Iterable[AbilitySource]) -> Iterator[tuple[str, str]]:
    """Yield each program of a ``tool: process`` that this machine lacks: its place and what to do.

    Another machine may have it, so a missing program does not make a workspace invalid.
    """
    for source in sources:
        argv: Any = source.settings.get("argv")
        if source.handler != {"tool": "process"} or not isinstance(argv, list) or not argv:
            continue
        pointer, name = ("/with/argv/0", argv[0]) if isinstance(argv[0], str) else ("/with/argv/0/0", argv[0][0])
        env: Any = source.settings.get("env", {})
        path = env.get("PATH", BASE["PATH"])
        if source.settings.get("programs") == "pip":
            path = f"{sysconfig.get_path('scripts')}:{path}"
        if isinstance(path, str) and not has_program(name, path):
            where = "" if name.startswith("/") else f" on {path}"
            why = f'this machine has no program "{name}"{where}; correct the name or install the program'
            yield source.origin.place(pointer, key=True), f"{source.id}: {why}"


def _exact(found: DomainError, workspace: Workspace | None) -> str | None:
    """Return the place of a fault with its column; a fault about a whole definition is placed at its handler."""
    for section in (workspace.abilities, workspace.hooks) if workspace else ():
        for source in section.values():
            if source.place == found.place:
                return source.origin.place("/handler", key=True)
    return found.place


def _check_files(files: Sequence[str], workspace: Workspace | None, findings: Iterable[Finding]) -> None:
    known = {*(workspace.digests if workspace else ()), *(_file(each.place) for each in findings if each.place)}
    for file in files:
        if file not in known:
            near = suggest(file, [name for name in known if name])
            why = f"{file} is no file that the workspace reads{near}"
            raise BindingError(fault("USAGE", why))


def _file(place: str | None) -> str | None:
    return place.split(":", 1)[0] if place else None


# --- notes ------------------------------------------------------------------------------------------------------------


def _notes(
    sources: list[AbilitySource], charter: Charter | None, workspace: Workspace | None, kinds: Kinds
) -> Iterator[Finding]:
    summaries: dict[str, str] = {}
    sections = workspace.sections.values() if workspace else ()
    led = {name for section in sections for name in section.trigger_names()}
    for source in sources:
        for pointer, message in _description_problems(source, summaries, led):
            yield Finding.note(source.origin.place(pointer, key=True), f"{source.id}: {message}")
    if charter is None or workspace is None:
        return
    yield from (Finding.note(place, message) for place, message in find_missing_programs(sources))
    yield from (Finding.note(place, message) for place, message in note_flows(charter.document, sources))
    for each in find_unguarded(charter.document):
        declared = workspace.abilities.get(each.name)
        place = declared.origin.place("", key=True) if declared else charter.document["abilities"][each.name]["place"]
        yield Finding.note(place, f"{each.name}: {each}")
    for gate in find_unmatched(charter.document):
        kind, _, name = gate.partition(" ")
        definition = (workspace.hooks if kind == "hook" else workspace.policies)[name]
        yield Finding.note(definition.origin.place("", key=True), f"{gate} matches no ability and is never asked")
    for note in lint_own_policies(charter.document, kinds, workspace.policies):
        if note.guards_nothing:
            yield Finding("error", "BINDING_INVALID", note.place, str(note))
        else:
            yield Finding.note(note.place, str(note))


def _description_problems(
    source: AbilitySource, summaries: dict[str, str], led: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield problems of an ability's description; words of prompts lead to the abilities in *led*."""
    if not source.intents and source.id not in led:
        yield "/routing_hints/intents", "routing_hints.intents is empty: no words of a prompt speak for it"
    plain = source.summary.strip().rstrip(".").casefold()
    if len(plain) < _SHORTEST or plain == source.id.casefold():
        yield "/summary", f"the summary {source.summary!r} says too little for a model to choose by"
    elif plain in summaries:
        yield "/summary", f"the summary is that of {summaries[plain]}, too; a model cannot tell the two apart"
    summaries.setdefault(plain, source.id)
