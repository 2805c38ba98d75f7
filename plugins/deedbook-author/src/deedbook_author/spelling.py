"""Which form the front matter of a skill has: the open Agent Skills form, or the runtime's own with more keys.

The open form (https://agentskills.io/specification) has six keys; further keys of a runtime stand under ``metadata``,
as texts. A skill in that form is *portable*: every reader of the form accepts it. The runtime's own form has lists, and
``triggers``, ``version``, ``plugin`` and ``schema_version`` at top level.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from deedbook.contract.pointers import join_pointer
from deedbook.workspace.documents import Document, flow_style_places

OPEN: Final = "open"
OWN: Final = "own"

_KEYS: Final = frozenset({"name", "description", "license", "compatibility", "metadata", "allowed-tools"})
_MAX_COMPATIBILITY: Final = 500


@attrs.frozen
class Obstacle:
    """A reason why a skill is not portable: its place (``file:line:column``), the problem, and what to do."""

    place: str
    why: str


def front_matter_form(document: Document) -> str:
    """Return ``open`` if the front matter has only the open form's keys, with tools as a text; else ``own``."""
    said: Any = document.value
    tools = said.get("allowed-tools", "")
    return OPEN if said.keys() <= _KEYS and isinstance(tools, str) else OWN


def obstacles(document: Document) -> list[Obstacle]:
    """Return all reasons why the front matter of a skill, which a loader has accepted, is not portable."""
    return sorted(_obstacles(document), key=lambda found: [*map(int, found.place.rsplit(":", 2)[1:])])


def _obstacles(document: Document) -> Iterator[Obstacle]:
    said: Any = document.value
    for key in said:
        if key not in _KEYS:
            yield Obstacle(
                document.place(join_pointer(key), key=True), f"{key}: is no key of the open form; put it under metadata"
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
            yield Obstacle(document.place(join_pointer("metadata", key), key=True), why)
    yield from _style_obstacles(document)


def _style_obstacles(document: Document) -> Iterator[Obstacle]:
    """Yield YAML styles that strict readers refuse, though the meaning is the same."""
    for place in flow_style_places(document):
        yield Obstacle(place, "is written with brackets; write a list or mapping one entry to a line")
    for number, line in enumerate(document.text.split("\n"), 1):
        found = re.search("---", line)
        if found:
            why = "holds ---, at which other readers end the front matter; write it otherwise"
            yield Obstacle(f"{document.path}:{number}:{found.start() + 1}", why)
