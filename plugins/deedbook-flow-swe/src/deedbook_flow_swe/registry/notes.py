"""Notes on files of pipelines that are valid and probably not what was meant: what nothing names; pure."""

from collections.abc import Iterator

import attrs

from .files import CONTRACTS, PIPELINES, ROUTING, SCHEMAS
from .registry import PipelineRegistry


@attrs.frozen
class PipelineNote:
    """A note: the *place* of a file, and *why* it is doubtful."""

    place: str
    why: str


def find_unused(registry: PipelineRegistry) -> Iterator[PipelineNote]:
    """Yield a note for each own file that nothing names. A pack's files may be meant for other workspaces."""
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
