"""Entries of memory: zones, keys, what an entry of an older form says in the present one, what never is one; pure.

An entry is proposed in a form of some version. The present one is ``memory_entry_v1``; what was recorded in an older
one is upcast whenever the ledger is folded, and never rewritten.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deedbook.contract import Object

from .canonical import encode
from .detectors import NAMES, Detectors

WORLD: Final = "world_state"
LEGACY: Final = "legacy"
ZONES: Final = (WORLD, "decision", "observation", LEGACY)
PROPOSED: Final = ZONES[:3]
"""The zones that somebody may propose to."""
GROUNDS: Final = ("user_declared", "tool_verified", "human_approved")
"""The kinds of provenance."""
VERSION: Final = "v1"
TOOLS: Final[Mapping[str, str]] = MappingProxyType(
    {"memory-read": "read", "memory-propose": "propose", "memory-retract": "retract"}
)
"""The handlers behind abilities of the kind memory, and what their caller wants with a zone."""
KEY: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*")
MAX_KEY: Final = 128
MAX_BYTES: Final = 65536
MAX_ENTRIES: Final = 10_000

Upcaster: TypeAlias = Callable[[Object], Object]


def is_key(value: object) -> bool:
    """Say whether *value* is in the form that keys have."""
    return isinstance(value, str) and len(value) <= MAX_KEY and KEY.fullmatch(value) is not None


# --- older forms ------------------------------------------------------------------------------------------------------


def upcast(entry: Object) -> tuple[Object, str]:
    """Return *entry* in the present form, and the zone that it belongs to.

    What no upcaster knows, or what its own form does not let it be, is kept as it is, in the zone ``legacy``.
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
    """Take over a key and a value that an early store had: without grounds it is at most an observation."""
    zone = entry.get("zone", LEGACY)
    kept = {"key": entry["key"], "value": entry["value"]}
    return {**kept, "schema_version": VERSION, "zone": zone if zone in ("decision", "observation") else LEGACY}


_UPCASTERS: Final[Mapping[str, Upcaster]] = MappingProxyType({"v0": _from_v0})
"""By the version that each takes an entry from."""


# --- what never enters ------------------------------------------------------------------------------------------------


class Forbidden:
    """What must never be remembered: card numbers, secrets, and the *patterns* of a workspace."""

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        self._detectors = Detectors(NAMES, patterns)

    def found(self, value: Any) -> bool:
        """Say whether a text anywhere in *value*, the names of members too, is forbidden."""
        return any(self._detectors.fires(text) for text in texts(value))


def texts(value: Any) -> Iterator[str]:
    """Yield every text in *value*; a number counts as it is spelled."""
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
    """Say whether two JSON values are the same; true is not 1, and 1.0 is 1."""
    return encode([one]) == encode([other])
