"""Notes on files of pipelines that are valid and probably not what was meant; pure."""

from collections.abc import Collection, Iterator

import attrs

from deedbook.policy.conditions import glob_test

from .files import CONTRACTS, PIPELINES, ROUTING, SCHEMAS
from .registry import PipelineRegistry


@attrs.frozen
class PipelineNote:
    """A note: the *place* of a file, and *why* it is doubtful."""

    place: str
    why: str


def lint_files(registry: PipelineRegistry, abilities: Collection[str]) -> Iterator[PipelineNote]:
    """Yield a note for each own file that nothing names, and for each forbidden ability that is not declared.

    A pack's files may be meant for other workspaces. *abilities* are the ids of those of this workspace.
    """
    yield from _find_unused(registry)
    for file in registry.files[CONTRACTS].values():
        for index, action in enumerate(file.front.get("forbidden_actions", ()) if file.pack is None else ()):
            if "use" in action and not any(map(glob_test([action["use"]]), abilities)):
                why = f"use: {action['use']} forbids no ability, since none is declared that fits it"
                yield PipelineNote(file.place("forbidden_actions", index, "use"), why)


def _find_unused(registry: PipelineRegistry) -> Iterator[PipelineNote]:
    named: dict[str, set[str]] = {axis: set() for axis in (CONTRACTS, ROUTING, SCHEMAS)}
    for file in registry.files[PIPELINES].values():
        named[CONTRACTS].update(file.front["phases"])
        named[ROUTING].update([file.front["routing"]] if "routing" in file.front else [])
    for definition in registry.definitions.values():
        named[SCHEMAS].update(definition.schemas)
    for axis, by in ((CONTRACTS, "pipeline"), (ROUTING, "pipeline"), (SCHEMAS, "contract")):
        for name, file in registry.files[axis].items():
            if file.pack is None and name not in named[axis]:
                yield PipelineNote(file.line, f"no {by} names {axis}/{name}")
