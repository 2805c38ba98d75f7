"""The times of a ledger as numbers, and spans of time as people write them; pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Final

__all__ = ["parse_moment", "parse_time"]

_FORMAT: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})\.([0-9]{3})Z")
_AGO: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_UNITS: Final[Mapping[str, int]] = MappingProxyType({"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800})


def parse_time(ts: str) -> int | None:
    """Return a time of a ledger as milliseconds since the epoch; ``None`` for an invalid one.

    Times of older ledgers have other fractions, or an offset.
    """
    match = _FORMAT.fullmatch(ts)
    if match:
        second = _parse_second(match[1])
        return None if second is None else second + int(match[2])
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@lru_cache(maxsize=64)
def _parse_second(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(f"{text}+00:00").timestamp()) * 1000
    except ValueError:
        return None


def parse_moment(text: str, now: float) -> int:
    """Return the moment in *text*, in milliseconds since the epoch.

    RFC 3339, a date, or a duration before *now* (seconds since the epoch): ``90s``, ``30m``, ``24h``, ``7d``, ``2w``.
    Raises `ValueError`.
    """
    match = _AGO.fullmatch(text)
    if match:
        return round((now - int(match[1]) * _UNITS[match[2]]) * 1000)
    found = parse_time(text)
    if found is None:
        raise ValueError(f"{text!r} is no time; say 2026-11-22, 2026-11-22T08:00:00Z, or how long ago: 30m, 24h, 7d")
    return found
