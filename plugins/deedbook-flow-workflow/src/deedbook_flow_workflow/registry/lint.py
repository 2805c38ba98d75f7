"""Notes on workflow files that are valid and probably not what was meant: what nothing names or asks; pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from deedbook_flow_workflow.definition import SUBJECTS

from .files import ARTIFACTS, CYCLES, PERSONAS, PHASES, POLICIES
from .registry import WorkflowRegistry


@attrs.frozen
class WorkflowNote:
    """A note: the *place* of a file, and *why* it is doubtful."""

    place: str
    why: str


def lint_files(registry: WorkflowRegistry, policies: Mapping[str, Any]) -> Iterator[WorkflowNote]:
    """Yield a note for each own file that nothing names, and for each named policy that is asked about nothing.

    A pack's files may be meant for other workspaces. *policies* are the entries of the charter.
    """
    named = _find_references(registry)
    for axis, by in ((PHASES, "cycle"), (PERSONAS, "phase"), (ARTIFACTS, "phase"), (POLICIES, "cycle or phase")):
        for name, file in registry.files[axis].items():
            matched = axis == POLICIES and "match" in file.front
            if file.pack is None and name not in named[axis] and not matched:
                yield WorkflowNote(file.line, f"no {by} names {axis}/{name}")
    yield from _find_unasked(registry, policies)


def _find_unasked(registry: WorkflowRegistry, policies: Mapping[str, Any]) -> Iterator[WorkflowNote]:
    """Yield a note for each own cycle or phase that names a policy which judges nothing that a cycle asks about."""
    files = [file for axis in (CYCLES, PHASES) for file in registry.files[axis].values() if file.pack is None]
    for file in files:
        for index, name in enumerate(file.front.get("policies", ())):
            entry = policies[name]
            if entry["match"] is None and SUBJECTS.isdisjoint(entry.get("subjects", ())):
                what = f"policies: {name} is never asked here: its kind {entry['plugin'][1]} judges none of"
                hint = "name a policy of another kind, or give it a match so that it judges calls"
                yield WorkflowNote(file.place("policies", index), f"{what} {', '.join(sorted(SUBJECTS))}; {hint}")


def _find_references(registry: WorkflowRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {axis: set() for axis in registry.files}
    for file in registry.files[CYCLES].values():
        found[PHASES].update(file.front["phases"])
        found[POLICIES].update(file.front.get("policies", ()))
    for file in registry.files[PHASES].values():
        found[PERSONAS].update(file.front.get("agents_invoked", ()))
        found[POLICIES].update(file.front.get("policies", ()))
        found[ARTIFACTS].update([file.front["artifact"]] if "artifact" in file.front else [])
    return found
