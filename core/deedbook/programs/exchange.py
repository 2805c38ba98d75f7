"""A question to a hook in another process, and its answer: one JSON document each.

The question holds the arguments of the event's method by their names. The answer is read strictly: what is not exactly
one answer that could be meant is none.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from deedbook.contract import Call, Decision, Principal
from deedbook.contract.lifecycle import EVENTS, Lifecycle, Unanswered
from deedbook.format import canonical
from deedbook.format.errors import IntakeError

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        name: code.co_varnames[1 : code.co_argcount]
        for name, code in ((name, getattr(Lifecycle, event.method).__code__) for name, event in EVENTS.items())
    }
)
"""What each event's method is called with, in order."""

_KEYS: Final = frozenset({"decision", "reason", "args", "output", "signals"})
_CALL: Final = (
    "ability",
    "kind",
    "args",
    "effects",
    "role",
    "skill",
    "enforcement",
    "session",
    "now",
    "facts",
    "digest",
)
_DEEP: Final = canonical.MAX_DEPTH + 8


def question(event: str, subject: Sequence[Any]) -> dict[str, Any]:
    """Return what is asked at *event*: its name, and the arguments (*subject*) by name."""
    return {"event": event, **dict(zip(ARGUMENTS[event], map(_plain, subject), strict=True))}


def subject(event: str, asked: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments that `question` was made of."""
    return tuple(_made(name, asked[name]) for name in ARGUMENTS[event])


def dumps(value: Any) -> bytes:
    """Return *value* as one line of JSON; what was admitted once may stand deeper here than a record allows."""
    return orjson.dumps(value)


def decision(event: str, said: Any, about: Sequence[Any]) -> Decision:
    """Return what the document *said* means at *event*, asked *about* those arguments; raises `Unanswered`.

    ``args`` and ``output`` are two words for one thing: what a transform leaves. At PostToolUse it is the result, and
    to allow is to leave it as it is.
    """
    if type(said) is not dict:
        raise Unanswered(f"answered {type(said).__name__}, not an object")
    extra = ", ".join(sorted(said.keys() - _KEYS))
    if extra:
        raise Unanswered(f"answered with unknown keys: {extra[:100]}; known are {', '.join(sorted(_KEYS))}")
    outcome, reason, signals = said.get("decision"), said.get("reason", ""), said.get("signals", {})
    if outcome not in ("allow", "transform", "ask", "deny"):
        raise Unanswered('answered without "decision": "allow", "transform", "ask" or "deny"')
    if type(reason) is not str or type(signals) is not dict:
        raise Unanswered("answered with a reason that is no text, or signals that are no object")
    left = [said[key] for key in ("args", "output") if key in said]
    if len(left) != (outcome == "transform"):
        raise Unanswered(f"answered {outcome} with {len(left)} of args and output; transform has one, others have none")
    return _decided(event, outcome, reason, signals, left, about)


def parse(raw: bytes) -> Any:
    """Read an answer: one document in UTF-8 without a byte order mark; raises `Unanswered`."""
    return _read(raw, canonical.parse)


def parse_frame(raw: bytes) -> Any:
    """Read a line of the process of a plugin's hook, as strictly as `parse`; raises `Unanswered`."""
    return _read(raw, canonical.parse_payload)


def _read(raw: bytes, read: Callable[[bytes], Any]) -> Any:
    try:
        return read(raw)
    except IntakeError as problem:
        raise Unanswered(f"{problem.error.code}: the answer is refused: {problem}") from None


def _decided(
    event: str, outcome: Any, reason: str, signals: dict[str, Any], left: list[Any], about: Sequence[Any]
) -> Decision:  # fmt: skip
    if event == "PostToolUse":
        if outcome in ("ask", "deny"):
            raise Unanswered(f"answered {outcome}; at PostToolUse it may allow, or transform the result")
        if signals:
            raise Unanswered("carried signals; PostToolUse is not blocking, so that is a configuration error")
        return Decision("transform", reason, {"result": left[0] if left else about[1]})
    if left and type(left[0]) is not dict:
        raise Unanswered(f"answered transform with {type(left[0]).__name__}, not an object")
    return Decision(outcome, reason, left[0] if left else None, signals)


def _plain(value: Any) -> Any:
    if isinstance(value, Call):
        told = {name: getattr(value, name) for name in _CALL}
        sets = {"tags": sorted(value.tags), "scopes": sorted(value.scopes), "paths": list(value.paths)}
        return {**told, **sets, "principal": _plain(value.principal)}
    if isinstance(value, Principal):
        return {"id": value.id, "via": value.via, "roles": sorted(value.roles), "on_behalf_of": value.on_behalf_of}
    return dict(value) if isinstance(value, Mapping) else value


def _made(name: str, value: Any) -> Any:
    if name == "principal":
        return Principal(value["id"], value["via"], frozenset(value["roles"]), value["on_behalf_of"])
    if name != "call":
        return value
    sets: dict[str, Any] = {name: frozenset(value[name]) for name in ("tags", "scopes")}
    told: dict[str, Any] = {key: value[key] for key in _CALL if key != "digest"}
    principal = _made("principal", value["principal"])
    return Call(
        **told, **sets, paths=tuple(value["paths"]), principal=principal, raw=canonical.encode(value["args"], _DEEP)
    )
