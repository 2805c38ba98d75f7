"""Which spelling the front matter of a skill has: the open Agent Skills form, or the runtime's own with more keys.

The open form (https://agentskills.io/specification) has six keys; what else a runtime needs stands under ``metadata``,
as texts. A skill in that form is *portable*: every reader of the form takes it. The runtime's own spelling has lists,
and ``triggers``, ``version``, ``plugin`` and ``schema_version`` at top level.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook.workspace.documents import Document, flowing, pointer

OPEN: Final = "open"
OWN: Final = "own"

_KEYS: Final = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
_MAX_COMPATIBILITY: Final = 500


@attrs.frozen
class Obstacle:
    """What keeps a skill from being portable: where (``file:line:column``), why, and what to do."""

    place: str
    why: str


def spelling(document: Document) -> str:
    """Return ``open`` if the front matter has only the open form's keys, with tools as a text; else ``own``."""
    said: Any = document.value
    tools = said.get("allowed-tools", "")
    return OPEN if said.keys() <= _KEYS and isinstance(tools, str) else OWN


def obstacles(document: Document) -> list[Obstacle]:
    """Return everything that keeps the front matter of a skill, which a loader has accepted, from being portable."""
    return sorted(_obstacles(document), key=lambda found: [*map(int, found.place.rsplit(":", 2)[1:])])


def _obstacles(document: Document) -> Iterator[Obstacle]:
    said: Any = document.value
    for key in said:
        if key not in _KEYS:
            yield Obstacle(
                document.place(pointer(key), key=True), f"{key}: is no key of the open form; put it under metadata"
            )
    if not isinstance(said.get("allowed-tools", ""), str):
        why = "allowed-tools: is a list; write the names into one text with spaces between them"
        yield Obstacle(document.place("/allowed-tools", key=True), why)
    compatibility = said.get("compatibility", "")
    if len(compatibility) > _MAX_COMPATIBILITY:
        why = f"compatibility: more than {_MAX_COMPATIBILITY} characters"
        yield Obstacle(document.place("/compatibility", key=True), why)
    for key, value in said.get("metadata", {}).items():
        if not isinstance(value, str):
            why = f"metadata.{key}: is no text; other readers keep texts only"
            yield Obstacle(document.place(pointer("metadata", key), key=True), why)
    yield from _written(document)


def _written(document: Document) -> Iterator[Obstacle]:
    """Yield what is written in a way that strict readers refuse, though it means the same."""
    for place in flowing(document):
        yield Obstacle(place, "is written with brackets; write a list or mapping one entry to a line")
    for number, line in enumerate(document.text.split("\n"), 1):
        found = re.search("---", line)
        if found:
            why = "holds ---, at which other readers end the front matter; write it otherwise"
            yield Obstacle(f"{document.path}:{number}:{found.start() + 1}", why)
