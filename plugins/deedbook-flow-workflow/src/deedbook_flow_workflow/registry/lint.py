"""Notes on workflow files that are valid and probably not what was meant: what nothing names; pure."""

from collections.abc import Iterator

import attrs

from .files import ARTIFACTS, CYCLES, PERSONAS, PHASES, POLICIES
from .registry import WorkflowRegistry


@attrs.frozen
class WorkflowNote:
    """A note: the *place* of a file, and *why* it is doubtful."""

    place: str
    why: str


def lint_files(registry: WorkflowRegistry) -> Iterator[WorkflowNote]:
    """Yield a note for each own file that nothing names. A pack's files may be meant for other workspaces."""
    named = _named(registry)
    for axis, by in ((PHASES, "cycle"), (PERSONAS, "phase"), (ARTIFACTS, "phase"), (POLICIES, "cycle or phase")):
        for name, file in registry.files[axis].items():
            matched = axis == POLICIES and "match" in file.front
            if file.pack is None and name not in named[axis] and not matched:
                yield WorkflowNote(file.line, f"no {by} names {axis}/{name}")


def _named(registry: WorkflowRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {axis: set() for axis in registry.files}
    for file in registry.files[CYCLES].values():
        found[PHASES].update(file.front["phases"])
        found[POLICIES].update(file.front.get("policies", ()))
    for file in registry.files[PHASES].values():
        found[PERSONAS].update(file.front.get("agents_invoked", ()))
        found[POLICIES].update(file.front.get("policies", ()))
        found[ARTIFACTS].update([file.front["artifact"]] if "artifact" in file.front else [])
    return found
