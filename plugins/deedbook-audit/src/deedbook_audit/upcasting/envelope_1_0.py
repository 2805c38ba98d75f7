"""Envelope 1.0, written by seed 002: seven fields, causal fields in the payload; its notation and its upcast."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeAlias

Row: TypeAlias = dict[str, Any]
"""A line of an older form, or of the current one, as an object."""

VERSION: Final = "1.0"
KEYS: Final = frozenset({"event_type", "payload", "payload_hash", "schema_version", "session_id", "trace_id", "ts"})
TS: Final = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)


def dump(value: Any) -> bytes:
    """Return the canonical notation of *value* in format 1.0."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def spell(event_type: str, payload: Row, *, session_id: str, trace_id: str, ts: str) -> bytes:
    r"""Return a line of format 1.0 with its ``\n`` and the hash of *payload*."""
    envelope = {
        "event_type": event_type,
        "payload": payload,
        "payload_hash": sha256(dump(payload)).hexdigest(),
        "schema_version": VERSION,
        "session_id": session_id,
        "trace_id": trace_id,
        "ts": ts,
    }
    return dump(envelope) + b"\n"


def load(line: bytes) -> Row:
    """Return the object in *line*; raises `ValueError` if it is no object, no JSON in UTF-8, or has a duplicate key."""
    if not line.strip():
        raise ValueError("no object")
    try:
        value = _DECODER.decode(line.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("no object")  # noqa: TRY004 - JSON parsing raises ValueError
    return value


def moment(ts: Any) -> str | None:
    """Return a time in the notation of 1.0, from seconds since the epoch or ISO 8601; ``None`` if it is neither."""
    try:
        if isinstance(ts, str):
            found = datetime.fromisoformat(ts)
            found = found if found.tzinfo else found.replace(tzinfo=UTC)
        elif isinstance(ts, int | float) and not isinstance(ts, bool) and math.isfinite(ts):
            found = datetime.fromtimestamp(ts, UTC)
        else:
            return None
        return found.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return None


def upcast(row: Row) -> Row:
    """Return a row of 1.0 as one of the current form, with causal fields and actor outside the payload.

    A line without causal fields, as in the first ledgers of this form, has no parent and no span.
    """
    payload = dict(row["payload"])
    actor = str(payload.pop("_actor", "runtime"))
    known = actor in _ACTORS
    names = _RENAMED.get(str(row["event_type"]), {})
    payload = {names[key] if key in names and names[key] not in payload else key: payload[key] for key in payload}
    return {
        "schema_version": "1.1",
        "session_id": str(row["session_id"]),
        "trace_id": str(row.get("trace_id", "")),
        "event_type": str(row["event_type"]),
        "actor": actor if known else "agent",
        "principal": None if known or not _NAME.fullmatch(actor) else f"agent:{actor}",
        "span_id": payload.pop("_span_id", None),
        "parent_span_id": payload.pop("_parent_span_id", None),
        "ts": str(row["ts"]),
        "payload": payload,
    }


_ACTORS: Final = frozenset({"runtime", "user", "agent", "tool", "policy", "system"})
_RENAMED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"system.boot": {"boot_mode": "kind"}, "system.shutdown": {"exit_reason": "reason"}}
)
"""Members of payloads that have another name in the current form."""
_NAME: Final = re.compile("[A-Za-z0-9._-]{1,64}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key appears twice in an object")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
"""Made once: `json.loads` would make one for each line."""
