"""Glob patterns, matched one name at a time, so that folders where nothing can match are never entered."""

from fnmatch import fnmatchcase
from typing import TypeAlias

from deedbook.contract import Failed

Places: TypeAlias = frozenset[int]
"""How far a pattern may have come: indices of the segments that could match the next name."""


class Glob:
    """A pattern of segments: ``*``, ``?`` and ``[...]`` stay within a name, ``**`` is any number of folders.

    Case counts. A name that begins with a dot is matched only by a segment that begins with one.
    """

    def __init__(self, pattern: str) -> None:
        """Split *pattern*; raise `Failed` with ``BAD_PATTERN`` for one that could match nothing."""
        self.segments = tuple(pattern.split("/"))
        if not {"", ".", ".."}.isdisjoint(self.segments):
            raise Failed(
                "BAD_PATTERN", f'{pattern!r} has a part that is empty, "." or ".."; write it like docs/**/*.md'
            )

    def start(self) -> Places:
        """Return the places before the first name."""
        return self._with_skips({0})

    def step(self, places: Places, name: str) -> Places:
        """Return the places after *name*; empty when nothing below it can match."""
        return self._with_skips({after for place in places for after in self._after(place, name)})

    def matches(self, places: Places) -> bool:
        """Return whether the whole pattern is used up."""
        return len(self.segments) in places

    def _after(self, place: int, name: str) -> tuple[int, ...]:
        if place == len(self.segments):
            return ()
        segment = self.segments[place]
        if name.startswith(".") and not segment.startswith("."):
            return ()
        if segment == "**":
            return (place,)
        return (place + 1,) if fnmatchcase(name, segment) else ()

    def _with_skips(self, places: set[int]) -> Places:
        """Add what ``**`` reaches by standing for no folder at all."""
        for place in range(min(places, default=0), len(self.segments)):
            if place in places and self.segments[place] == "**":
                places.add(place + 1)
        return frozenset(places)
