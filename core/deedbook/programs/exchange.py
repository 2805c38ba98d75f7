"""The exchange with a hook in another process: a question and an answer, one JSON document each.

The question holds the arguments of the event's method by name. The answer is read strictly: anything that is not
exactly one valid answer counts as none.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import orjson

from deedbook.contract import Call, Decision, Principal
from deedbook.contract.lifecycle import EVENTS, Lifecycle, NoAnswer
from deedbook.format import canonical
from deedbook.format.errors import IntakeError

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        name: code.co_varnames[1 : code.co_argcount]
        for name, code in ((name, getattr(Lifecycle, event.method).__code__) for name, event in EVENTS.items())
    }
)
"""The arguments of each event's method, in order."""

_KEYS: Final = frozenset({"decision", "reason", "args", "output", "signals"})
_CALL: Final = (
    "ability",
    "kind",
    "args",
    "effects",
    "role",
    "skill",
    "mode",
    "enforcement",
    "session",
    "now",
    "facts",
    "digest",
)
_DEEP: Final = canonical.MAX_DEPTH + 8


def build_question(event: str, subject: Sequence[Any]) -> dict[str, Any]:
    """Return the question for *event*: its name, and the arguments (*subject*) by name."""
    return {"event": event, **dict(zip(ARGUMENTS[event], map(_encode, subject), strict=True))}


def parse_subject(event: str, asked: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments from a question of `build_question`."""
    return tuple(_decode(name, asked[name]) for name in ARGUMENTS[event])


def dumps(value: Any) -> bytes:
    """Return *value* as one line of JSON. An admitted value may be nested deeper here than a record allows."""
    return orjson.dumps(value)


def parse_decision(event: str, document: Any, about: Sequence[Any]) -> Decision:
    """Return the decision in the document *document* at *event*, for the arguments *about*; raises `NoAnswer`.

    ``args`` and ``output`` are two names for the same thing: the result of a transform. At PostToolUse it is the call's
    result, and ``allow`` leaves the result unchanged.
    """
    if type(document) is not dict:
        raise NoAnswer(f"answered {type(document).__name__}, not an object")
    extra = ", ".join(sorted(document.keys() - _KEYS))
    if extra:
        raise NoAnswer(f"answered with unknown keys: {extra[:100]}; known are {', '.join(sorted(_KEYS))}")
    outcome, reason, signals = document.get("decision"), document.get("reason", ""), document.get("signals", {})
    if outcome not in ("allow", "transform", "ask", "deny"):
        raise NoAnswer('answered without "decision": "allow", "transform", "ask" or "deny"')
    if type(reason) is not str or type(signals) is not dict:
        raise NoAnswer("answered with a reason that is no text, or signals that are no object")
    left = [document[key] for key in ("args", "output") if key in document]
    if len(left) != (outcome == "transform"):
        raise NoAnswer(f"answered {outcome} with {len(left)} of args and output; transform has one, others have none")
    return _build_decision(event, outcome, reason, signals, left, about)


def parse(raw: bytes) -> Any:
    """Parse an answer: one document in UTF-8 without a byte order mark; raises `NoAnswer`."""
    return _read(raw, canonical.parse)


def parse_frame(raw: bytes) -> Any:
    """Parse a line from the process of a plugin's hook, as strictly as `parse`; raises `NoAnswer`."""
    return _read(raw, canonical.parse_payload)


def _read(raw: bytes, read: Callable[[bytes], Any]) -> Any:
    try:
        return read(raw)
    except IntakeError as problem:
        raise NoAnswer(f"{problem.error.code}: the answer is refused: {problem}") from None


def _build_decision(
    event: str, outcome: Any, reason: str, signals: dict[str, Any], left: list[Any], about: Sequence[Any]
) -> Decision:  # fmt: skip
    if event == "PostToolUse":
        if outcome in ("ask", "deny"):
            raise NoAnswer(f"answered {outcome}; at PostToolUse it may allow, or transform the result")
        if signals:
            raise NoAnswer("carried signals; PostToolUse is not blocking, so that is a configuration error")
        return Decision("transform", reason, {"result": left[0] if left else about[1]})
    if left and type(left[0]) is not dict:
        raise NoAnswer(f"answered transform with {type(left[0]).__name__}, not an object")
    return Decision(outcome, reason, left[0] if left else None, signals)


def _encode(value: Any) -> Any:
    if isinstance(value, Call):
        members = {name: getattr(value, name) for name in _CALL}
        sets = {"tags": sorted(value.tags), "scopes": sorted(value.scopes), "paths": list(value.paths)}
        return {**members, **sets, "principal": _encode(value.principal)}
    if isinstance(value, Principal):
        return {"id": value.id, "via": value.via, "roles": sorted(value.roles), "on_behalf_of": value.on_behalf_of}
    return dict(value) if isinstance(value, Mapping) else value


def _decode(name: str, value: Any) -> Any:
    if name == "principal":
        return Principal(value["id"], value["via"], frozenset(value["roles"]), value["on_behalf_of"])
    if name != "call":
        return value
    sets: dict[str, Any] = {name: frozenset(value[name]) for name in ("tags", "scopes")}
    members: dict[str, Any] = {key: value[key] for key in _CALL if key != "digest"}
    principal = _decode("principal", value["principal"])
    return Call(
        **members, **sets, paths=tuple(value["paths"]), principal=principal, raw=canonical.encode(value["args"], _DEEP)
    )
