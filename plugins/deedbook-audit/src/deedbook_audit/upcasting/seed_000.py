"""The events of seed 000's store (id, parent's id, type, payload, no hash), and their upcast to envelope 1.0.

Its programs wrote the ability's name as ``name``, and a model's request and answer without a wrapper; seed 002 and the
current form use ``tool_name``, ``request`` and ``response``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from .envelope_1_0 import VERSION, Row, moment

FORM: Final = "seed-000"
KEYS: Final = frozenset({"id", "session_id", "ts", "type", "actor", "payload", "schema_version", "parent_id"})
SCHEMA: Final = "v1"


def upcast(row: Row) -> Row:
    """Return a row of seed 000 as one of envelope 1.0; its hash stays empty, since seed 000 has none."""
    kind, actor = str(row["type"]), str(row["actor"])
    payload = row["payload"] if isinstance(row["payload"], dict) else {"value": row["payload"]}
    take = _TAKE.get(kind)
    causal = {"_span_id": row["id"], "_actor": actor}
    if row.get("parent_id") is not None:
        causal["_parent_span_id"] = row["parent_id"]
    return {
        "schema_version": VERSION,
        "event_type": kind,
        "session_id": str(row["session_id"]),
        "trace_id": str(row["session_id"]),
        "ts": moment(row["ts"]) or str(row["ts"]),
        "payload_hash": "",
        "payload": {**(take(payload, actor) if take else payload), **causal},
    }


def _rename(payload: Row, names: Mapping[str, str]) -> Row:
    """Return *payload* with members under their later names, if these are free."""
    return {names[key] if key in names and names[key] not in payload else key: item for key, item in payload.items()}


def _tool(payload: Row, _: str) -> Row:
    return _rename(payload, {"name": "tool_name", "tool": "tool_name"})


def _skill(payload: Row, _: str) -> Row:
    return _rename(payload, {"name": "skill", "skill_id": "skill", "id": "skill"})


def _hook(payload: Row, _: str) -> Row:
    return _rename(payload, {"hook": "event", "name": "event"})


def _bare(member: str) -> Callable[[Row, str], Row]:
    """Return a function that puts a model's request, or its answer, under *member*, and names the caller."""
    return lambda payload, actor: payload if member in payload else {"ability": f"model/{actor}", member: payload}


_TAKE: Final[Mapping[str, Callable[[Row, str], Row]]] = MappingProxyType(
    {
        "tool.invoke": _tool,
        "tool.result": _tool,
        "skill.invoke": _skill,
        "skill.complete": _skill,
        "hook.fired": _hook,
        "llm.request": _bare("request"),
        "llm.response": _bare("response"),
    }
)
