"""Entries of memory: keys, upcasting of older forms, and forbidden values; pure.

An entry is proposed in a form of some version. The current one is ``memory_entry_v1``; entries of older forms are
upcast whenever the ledger is folded, and never rewritten.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deedbook.charter.zones import LEGACY, WORLD, ZONES
from deedbook.contract import Object
from deedbook.format.canonical import encode
from deedbook.format.detectors import NAMES, Detectors

PROPOSED: Final = ZONES[:3]
"""The zones that accept proposals."""
VERSION: Final = "v1"
KEY: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*")
MAX_KEY: Final = 128

Upcaster: TypeAlias = Callable[[Object], Object]


def is_key(value: object) -> bool:
    """Return whether *value* is a valid key."""
    return isinstance(value, str) and len(value) <= MAX_KEY and KEY.fullmatch(value) is not None


# --- older forms ------------------------------------------------------------------------------------------------------


def upcast(entry: Object) -> tuple[Object, str]:
    """Return *entry* in the current form, and its zone.

    An entry that no upcaster knows, or that is invalid in its own form, is kept as it is, in the zone ``legacy``.
    """
    try:
        made = entry
        while (version := made["schema_version"]) != VERSION:
            made = _UPCASTERS[version](made)
        sound = made["zone"] in ZONES and (made["zone"] != WORLD or "provenance" in made) and "value" in made
    except (KeyError, TypeError, ValueError):
        return entry, LEGACY
    return (made, made["zone"]) if sound else (entry, LEGACY)


def _from_v0(entry: Object) -> Object:
    """Convert a key and a value of an early store: without grounds it is at most an observation."""
    zone = entry.get("zone", LEGACY)
    kept = {"key": entry["key"], "value": entry["value"]}
    return {**kept, "schema_version": VERSION, "zone": zone if zone in ("decision", "observation") else LEGACY}


_UPCASTERS: Final[Mapping[str, Upcaster]] = MappingProxyType({"v0": _from_v0})
"""Upcasters by the version of the entry that they accept."""


# --- what never enters ------------------------------------------------------------------------------------------------


class ForbiddenValues:
    """Values that must never be remembered: card numbers, secrets, and the *patterns* of a workspace."""

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        self._detectors = Detectors(NAMES, patterns)

    def matches(self, value: Any) -> bool:
        """Return whether any text in *value*, including member names, is forbidden."""
        return any(self._detectors.fires(text) for text in texts(value))


def texts(value: Any) -> Iterator[str]:
    """Yield every text in *value*; a number counts as its notation."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1, and 1.0 is 1."""
    return encode([one]) == encode([other])
