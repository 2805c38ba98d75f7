"""Checks of a pack without a workspace: errors prevent its use, notes are doubtful."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.charter.policies import lint_policies
from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DeedbookError, SourceError, fault
from deedbook.format.release import VERSION
from deedbook.plugins.groups import AGENT_PLUGIN
from deedbook.plugins.plugins import Catalogue
from deedbook.plugins.policy_kinds import installed_kinds
from deedbook.policy.charter import Charter
from deedbook.workspace.declarations import Source, Workspace
from deedbook.workspace.sections import pack_parts
from deedbook.workspace.sources import TESTS
from deedbook.workspace.workspace import survey_workspace
from deedbook_author.findings import Finding, compile_surveyed

from .cases import TestResult, run_cases
from .packages import Pack, is_path, open_packs
from .scratch import SETTINGS_FILE, Scratch, open_scratch

_SECTIONS: Final = ("abilities", "hooks", "policies")
_FOLDERS: Final = {
    "abilities": ("registry/",),
    "hooks": ("hooks/",),
    "policies": ("policies/",),
}
_DEFINITION: Final = re.compile(
    rf"(?:{'|'.join(map(re.escape, pack_parts()))})/.+|agents/[^/]+\.md|agents/[^/]+/\.agent"
)
"""The paths of files whose names, or those of their folders, are ids."""
_GENERAL: Final = ("deedbook", "deedbook-pack")
"""The beginnings of distribution names that name no one in particular."""
_POINTER_TOOLS: Final = ("sequence", "linter-findings")
"""Tools whose settings hold JSON pointers and no paths."""


def lint_package(named: str, catalogue: Catalogue) -> list[tuple[str, list[Finding]]]:
    """Return the findings about each pack of a folder or a wheel, or about the installed pack of that name.

    Faults of the folder or wheel itself, which keep its packs from being read, are also findings. Raises
    `DeedbookError` if there is no such pack.
    """
    if not is_path(named):
        with ExitStack() as held:
            return [(pack.title, lint(pack, catalogue)) for pack in open_packs(named, held, catalogue)]
    if not Path(named).exists():
        raise SourceError(fault("SOURCE_INVALID", "there is no such folder or wheel", place=named))
    with ExitStack() as held:
        try:
            packs = open_packs(named, held, catalogue)
        except DeedbookError as problem:
            return [(named, [Finding.error(each) for each in problem.errors])]
        return [(pack.title, lint(pack, catalogue)) for pack in packs]


def lint(pack: Pack, catalogue: Catalogue) -> list[Finding]:
    """Return everything that would prevent the use of *pack*, and then everything doubtful about it."""
    found: list[Finding] = []
    try:
        with open_scratch(pack, catalogue) as scratch:
            found += _check(scratch, catalogue)
    except DeedbookError as problem:
        found += [Finding.error(attrs.evolve(each, place=pack.relocate(each.place))) for each in problem.errors]
    return sorted(dict.fromkeys(found), key=lambda each: each.level)  # errors come first


def _check(scratch: Scratch, catalogue: Catalogue) -> Iterator[Finding]:
    workspace, unreadable = survey_workspace(scratch.root, catalogue=scratch.catalogue)
    charter, faults = compile_surveyed(workspace, unreadable, scratch.catalogue, kernel=VERSION)
    yield from (Finding.error(scratch.relocate(each)) for each in faults)
    if workspace is None:
        return
    own = {section: _own(getattr(workspace, section)) for section in _SECTIONS}
    yield from _foreign_paths(scratch, own)
    yield from _common_names(scratch, own)
    yield from _names_of_others(scratch, own, catalogue)
    if charter is not None and not faults:
        yield from _rules(scratch, workspace, charter)


def _own(sources: Mapping[str, Source]) -> dict[str, Source]:
    """Return the definitions that stand in the pack."""
    return {name: source for name, source in sources.items() if source.origin.packed}


# --- paths ------------------------------------------------------------------------------------------------------------


def _foreign_paths(scratch: Scratch, own: Mapping[str, Mapping[str, Source]]) -> Iterator[Finding]:
    """Yield the settings of abilities and hooks that are paths outside of the pack and of the workspace."""
    for section in ("abilities", "hooks"):
        for name, source in own[section].items():
            if getattr(source, "handler", {}).get("tool") in _POINTER_TOOLS:
                continue
            settings: Any = getattr(source, "settings", {})
            for pointer, text in _texts(settings, "/with"):
                if _is_foreign(text):
                    place = scratch.relocate_place(source.origin.place(pointer))
                    why = f"{name}: {text!r} is a path outside the workspace; other machines may not have it"
                    yield Finding.note(place, why)


def _texts(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield pointer, value
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, inner in items:
        yield from _texts(inner, f"{pointer}{join_pointer(key)}")


def _is_foreign(text: str) -> bool:
    absolute = text.startswith("/") and not text.startswith("/dev/") and len(text) > 1
    return absolute or text.startswith(("~/", "../")) or "/../" in text


# --- names ------------------------------------------------------------------------------------------------------------


def _common_names(scratch: Scratch, own: Mapping[str, Mapping[str, Source]]) -> Iterator[Finding]:
    """Yield the ids that other packs could use as well, because they do not begin with a name of this one."""
    spaces = name_spaces(scratch.pack)
    for section in _SECTIONS:
        for declared, source in own[section].items():
            name = _id_in_file(source, declared)
            if not declared.endswith(name):
                continue  # what a workflow file brings along, and all packs share
            if not any(name == space or name.startswith((f"{space}-", f"{space}/")) for space in spaces):
                joint = "/" if section == "abilities" and name == declared else "-"
                why = (
                    f'"{name}" has no prefix of its own; another pack may use it too: call it {spaces[0]}{joint}{name}'
                )
                yield Finding.note(scratch.relocate_place(source.origin.place("/id")), why)


def _id_in_file(source: Source, declared: str) -> str:
    """Return the id in the file of a definition: that of a cycle or persona, which declares more than itself."""
    said = source.origin.document.value
    return str(said.get("id", said.get("name", declared))) if isinstance(said, dict) else declared


def name_spaces(pack: Pack) -> list[str]:
    """Return the beginnings of ids that belong to a pack: of its name and of its distribution, the shortest first."""
    found = []
    for name in (pack.name, pack.offer.distribution.removeprefix("deedbook-pack-").removeprefix("deedbook-")):
        words = name.lower().replace("_", "-").replace(".", "-").split("-")
        found += ["-".join(words[:count]) for count in range(1, len(words) + 1)]
    return sorted(set(found) - set(_GENERAL), key=lambda each: (len(each), each)) or [pack.name]


def _names_of_others(
    scratch: Scratch, own: Mapping[str, Mapping[str, Source]], catalogue: Catalogue
) -> Iterator[Finding]:
    """Yield the ids that an installed pack of another distribution also has: one workspace cannot name both."""
    for name in catalogue.names("pack"):
        offer = catalogue.get("pack", name)
        if offer is None or name.startswith(AGENT_PLUGIN) or offer.distribution == scratch.pack.offer.distribution:
            continue
        other = Pack(offer)
        for section in _SECTIONS:
            for path, taken in _ids(other, section):
                source = own[section].get(taken)
                if source is not None:
                    why = f'"{taken}" is also in {other.label}: {path}; a workspace that names both does not start'
                    yield Finding.note(scratch.relocate_place(source.origin.place("/id")), why)
        for path in _find_same_files(scratch.pack, other):
            why = f"{path} is also in {other.label}, and its name is its id; a workspace that names both does not start"
            yield Finding.note(scratch.relocate_place(f"{scratch.pack.label}: {path}"), why)


def _find_same_files(pack: Pack, other: Pack) -> list[str]:
    """Return the files with definitions that both packs have under one path: of features, agents and roles."""
    with suppress(DeedbookError):
        both = set(pack.folder().all_names()) & set(other.folder().all_names())
        return sorted(path for path in both if _DEFINITION.fullmatch(path) and not path.endswith("README.md"))
    return []


def _ids(pack: Pack, section: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the id of each definition that can be read; faults are found by its own lint."""
    with suppress(DeedbookError):
        tree = pack.tree()
        for path in pack.folder().all_names():
            if path.startswith(_FOLDERS[section]) and path.endswith(".yaml") and not path.endswith(TESTS):
                said: Any = tree.yaml(path).value
                if isinstance(said, dict) and isinstance(said.get("id"), str):
                    yield path, said["id"]


# --- rules and their tests --------------------------------------------------------------------------------------------


def _rules(scratch: Scratch, workspace: Workspace, charter: Charter) -> Iterator[Finding]:
    own = {name for name, source in workspace.policies.items() if source.origin.packed}
    if not own:
        return
    if not scratch.declares and not charter.document["abilities"]:
        why = f"no rule can be checked or tested: {SETTINGS_FILE} declares no abilities; write it beside policies/"
        yield Finding.note(scratch.pack.relocate(f"{scratch.pack.label}: {SETTINGS_FILE}"), why)
        return
    for each in lint_policies(charter.document, installed_kinds(scratch.catalogue), workspace.policies):
        if each.policy in own:
            yield Finding.note(scratch.relocate_place(each.place), scratch.pack.shorten(str(each)))
    yield from _find_untested(scratch, run_cases(scratch.pack, workspace, scratch.catalogue, skip=False))


def _find_untested(scratch: Scratch, result: TestResult) -> Iterator[Finding]:
    for each in result.coverage:
        if not each.covered:
            why = f"{each.label} of policy {each.policy} has no test: no case is decided by it"
            yield Finding.note(scratch.relocate_place(each.place), why)
    failures = [(each.case.place, each.case.name, each.problem) for each in result.policies]
    failures += [(each.trial.place, each.trial.name, each.problem) for each in result.hooks]
    for place, name, problem in failures:
        if problem:
            why = f"the test case {name!r} fails: {problem}"
            yield Finding("error", "SOURCE_INVALID", scratch.relocate_place(place), why)
