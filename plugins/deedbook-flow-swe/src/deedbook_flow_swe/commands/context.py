"""Show what the agent of a phase gets: `deedbook swe context`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.output import as_json, say, table
from deedbook.format.errors import BindingError, DeedbookError, SourceError, fault
from deedbook.format.terminal import plain

from .lookup import find_contract, find_definition, find_workspace

if TYPE_CHECKING:
    from deedbook.format.files import Folder
    from deedbook.workspace.declarations import Workspace
    from deedbook_flow_swe.context import ContextFile, PhaseContext, PhaseWork
    from deedbook_flow_swe.contract import Contract
    from deedbook_flow_swe.definition import Definition

MOST_BYTES: Final = 1 << 20
"""The most bytes of a file that is read."""


@click.command("context", short_help="Show what the agent of a phase gets.")
@click.argument("task", metavar="TASK")
@click.argument("phase", metavar="PHASE")
@click.option("--unit", metavar="ID", help="The unit, in a phase that works on one unit at a time.")
@click.option("--pipeline", metavar="ID", help="The pipeline, if there are several.")
@click.option("--text", is_flag=True, help="Print the text of the prompt.")
@profile_option
@json_option
@click.pass_obj
def context(
    options: GlobalOptions,
    task: str,
    phase: str,
    unit: str | None,
    pipeline: str | None,
    profile: str | None,
    *,
    text: bool,
) -> int:
    """Show the prompt of PHASE for TASK as its files are now: parts, tokens, digests, and what is left out.

    Tokens are estimated. What the runner adds during a run is not shown: the code of a unit, and the signal that a
    phase has to mend. Exit status 1 if an input is missing, or if the prompt is over its budget.
    """
    if text and options.json:
        raise click.UsageError("--text prints the prompt; leave --json out")
    workspace = find_workspace(options, profile)
    definition = find_definition(workspace, pipeline)
    contract = find_contract(definition, phase)
    made = _assemble(workspace, definition, contract, task, unit)
    if text:
        for line in made.text.splitlines():
            say(plain(line))
    elif options.json:
        as_json({"schema_version": "v1", "task": task, "phase": phase, **_as_json(made)})
    else:
        for line in _describe(made):
            say(plain(line))
        table((part.kind, part.path, f"{part.tokens} tokens", part.digest[:12]) for part in made.parts)
        for each in made.left_out:
            say(plain(f"left out ({each.reason}): {each.path}, {each.tokens} tokens"))
    return 0 if made.fits and not made.missing else 1


def _describe(made: "PhaseContext") -> Iterator[str]:
    counted = "estimated" if made.counted == "estimate" else "counted by the provider"
    yield f"{made.tokens} of {made.budget} tokens ({counted})"
    if not made.fits:
        yield "over the budget without any optional part: the phase would be blocked"
    yield from (f"missing input: {name}; the phase would be blocked" for name in made.missing)


def _as_json(made: "PhaseContext") -> dict[str, Any]:
    return {
        "tokens": made.tokens,
        "counted": made.counted,
        "budget": made.budget,
        "fits": made.fits,
        "missing": list(made.missing),
        "parts": [
            {"kind": each.kind, "path": each.path, "tokens": each.tokens, "digest": each.digest} for each in made.parts
        ],
        "left_out": [{"path": each.path, "reason": each.reason, "tokens": each.tokens} for each in made.left_out],
    }


def _assemble(
    workspace: "Workspace", definition: "Definition", contract: "Contract", task: str, unit: str | None
) -> "PhaseContext":
    from deedbook.format.files import Folder
    from deedbook_flow_swe.context import assemble

    with Folder.at(workspace.root) as root:
        work = _find_work(root, workspace, definition, contract, task, unit)
        try:
            files = list(_read_files(root, contract, work.values))
        except ValueError as problem:
            raise BindingError(fault("USAGE", str(problem))) from None
        return assemble(definition, contract, work, files)


def _find_work(
    root: "Folder", workspace: "Workspace", definition: "Definition", contract: "Contract", task: str, unit: str | None
) -> "PhaseWork":
    from deedbook_flow_swe.context import PhaseWork
    from deedbook_flow_swe.contract import PROJECT, TASK, UNIT

    meta = _read_value(root, _fill(definition.path("tasks/{task-id}/META.yaml"), {TASK: task}))
    values = {TASK: task, **({PROJECT: meta["project"]} if "project" in meta else {})}
    found, units = None, _read_units(root, definition, contract, values)
    if definition.works_units(contract.phase):
        found = _find_unit(units, unit)
        values[UNIT] = str(found["id"])
    elif unit is not None:
        raise BindingError(fault("USAGE", f"the phase {contract.phase} works on no unit; leave --unit out"))
    persona = _read_persona(root, workspace, contract.agent)
    return PhaseWork(
        values=values, tags=frozenset(meta.get("tags", ())), unit=found, units=units, persona=persona,
        criteria=_read_criteria(root, definition, contract, values), request=str(meta.get("request", "")),
    )  # fmt: skip


def _read_units(
    root: "Folder", definition: "Definition", contract: "Contract", values: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the units of the task, if an earlier phase lists them."""
    if definition.units is None:
        return []
    earlier = definition.phases[: definition.position(contract.phase)]
    listing = next((each for each in earlier if each.phase == definition.units.listed_by), None)
    if listing is None:
        return []
    path = next(each.path for each in listing.outputs if each.name == definition.units.output)
    rows = _read_if_there(root, _fill(path, values)).get("units")
    return [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []


def _read_criteria(
    root: "Folder", definition: "Definition", contract: "Contract", values: Mapping[str, str]
) -> list[Mapping[str, Any]]:
    """Return the criteria that an output of an earlier phase lists."""
    from deedbook_flow_swe.contract import UNIT, find_placeholders
    from deedbook_flow_swe.definition import find_criteria

    earlier = definition.phases[: definition.position(contract.phase)]
    for output in (output for each in earlier for output in each.outputs):
        if output.many or UNIT in find_placeholders(output.path) or not output.path.endswith(".md"):
            continue
        found = find_criteria(_read_if_there(root, _fill(output.path, values)))
        if found:
            return found
    return []


def _find_unit(units: Iterable[Mapping[str, Any]], name: str | None) -> Mapping[str, Any]:
    known = {str(each.get("id")): each for each in units}
    if name in known:
        return known[name]
    why = "name a unit with --unit" if name is None else f"there is no unit {name!r}"
    raise BindingError(fault("USAGE", f"{why}; units: {', '.join(known) or 'none'}"))


def _read_persona(root: "Folder", workspace: "Workspace", agent: str) -> str:
    from deedbook import Failed
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.personas import read_persona

    card = workspace.cards[agent]
    said = {"persona": card.persona, "pack": card.pack, "digest": card.digest}
    try:
        return read_persona(root, discover(), agent, said)
    except Failed as problem:
        raise SourceError(fault(problem.code, str(problem), place=card.place)) from None


def _fill(path: str, values: Mapping[str, str]) -> str:
    from deedbook_flow_swe.contract import fill

    try:
        return fill(path, values)
    except ValueError as problem:
        raise BindingError(fault("USAGE", str(problem))) from None


def _read_value(root: "Folder", path: str) -> dict[str, Any]:
    """Return the value of a YAML file, or the front matter of a Markdown file; raises `SourceError`."""
    from deedbook.workspace.documents import parse_front_matter, parse_yaml

    raw = _read(root, path)
    found: Any = parse_front_matter(raw, path)[0].value if path.endswith(".md") else parse_yaml(raw, path).value
    if not isinstance(found, dict):
        raise SourceError(fault("SOURCE_INVALID", "is no mapping (key: value)", place=path))
    return found


def _read_if_there(root: "Folder", path: str) -> dict[str, Any]:
    """Return the value of a file that an earlier phase gives; nothing if it cannot be read."""
    try:
        return _read_value(root, path)
    except DeedbookError:
        return {}


def _read(root: "Folder", path: str) -> bytes:
    from deedbook.workspace.sources import read

    return read(root, path, MOST_BYTES)


def _read_files(root: "Folder", contract: "Contract", values: Mapping[str, str]) -> "Iterator[ContextFile]":
    """Yield the files that the contract lets its agent read, as the door would."""
    from deedbook.policy.limits import FileList
    from deedbook_flow_swe.context import ContextFile, list_paths

    limits = contract.limits(values)
    allowed = FileList.compile(tuple(limits.reads or ()))
    wanted = FileList.compile([each for those in list_paths(contract, values) for each in those])
    for path in _walk(root, "", wanted):
        if allowed.fits(path):
            yield ContextFile(path, _decode(_read(root, path), path))


def _decode(raw: bytes, path: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SourceError(fault("SOURCE_INVALID", "is no UTF-8 text", place=path)) from None


def _walk(root: "Folder", folder: str, wanted: Any) -> Iterator[str]:
    """Yield the files below *folder* that are *wanted*, in order."""
    try:
        entries = sorted(root.scan(folder))
    except FileNotFoundError:
        return
    except DeedbookError as problem:
        raise SourceError(*problem.errors) from None
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.folder and wanted.reaches_below(path):
            yield from _walk(root, path, wanted)
        elif not entry.folder and wanted.fits(path):
            yield path
