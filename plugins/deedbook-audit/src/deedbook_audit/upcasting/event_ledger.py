"""The lines of seed 002's second writer, `EventLedger`: time, type, an optional session, payload; no hashes.

That writer records boots and shutdowns of the system and decisions of the memory gate; ``ts`` is in seconds since the
epoch, or ISO 8601 as its protocol requires. Its later version writes envelope 1.0, with the session ``unknown`` if none
was named; this module does the same.
"""

from typing import Final

from .envelope_1_0 import VERSION, Row, moment

FORM: Final = "seed-002-unhashed"
KEYS: Final = frozenset({"ts", "event_type", "session_id", "payload"})
NO_SESSION: Final = "unknown"
"""The session of lines that name none."""


def is_line(row: Row) -> bool:
    """Return whether a JSON object has exactly the fields of this form; ``session_id`` may be left out."""
    return KEYS - {"session_id"} <= row.keys() <= KEYS


def session_of(row: Row) -> str:
    """Return the session of a line."""
    return str(row.get("session_id") or NO_SESSION)


def upcast(row: Row) -> Row:
    """Return a line as one of envelope 1.0; its hash stays empty, since the form has none."""
    if not is_line(row):
        raise ValueError("not a line of this form")
    session = session_of(row)
    payload = row["payload"] if isinstance(row["payload"], dict) else {"value": row["payload"]}
    return {
        "schema_version": VERSION,
        "event_type": str(row["event_type"]),
        "session_id": session,
        "trace_id": session,
        "ts": moment(row["ts"]) or str(row["ts"]),
        "payload_hash": "",
        "payload": payload,
    }
