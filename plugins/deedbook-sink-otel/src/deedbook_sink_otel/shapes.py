"""What each event is as a span: its name and attributes when it begins, and what its end adds."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from deedbook import Object

from . import contents as told
from . import conventions as names

if TYPE_CHECKING:
    from .spans import Recorded, Span

__all__ = ["CLOSES", "POINTS", "SOFT", "Made", "Shape", "Source"]

CLOSES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "session.start": frozenset({"session.end"}),
        "user.message": frozenset({"agent.reply"}),
        "skill.invoke": frozenset({"skill.complete"}),
        "agent.transition": frozenset(),
        "flow.call": frozenset({"flow.result", "flow.error"}),
        "llm.request": frozenset({"llm.response", "llm.error"}),
        "tool.call": frozenset({"tool.result", "tool.error"}),
        "memory.call": frozenset({"memory.result", "memory.error"}),
        "approval.requested": frozenset(
            f"approval.{end}" for end in ("granted", "refused", "expired", "withdrawn", "answered")
        ),
        "task.started": frozenset({"task.ended"}),
        "action.received": frozenset({"action.done"}),
        "system.boot": frozenset({"system.shutdown"}),
    }
)
"""What begins a span, and what may end it; the end hangs under the beginning."""
POINTS: Final = frozenset(
    {"tool.denied", "ledger.created", "ledger.key", "ledger.checkpoint", "ledger.witnessed", "ledger.charter"}
)
"""What is a span that takes no time."""
SOFT: Final = frozenset(
    {"session.start", "user.message", "skill.invoke", "agent.transition", "approval.requested", "system.boot"}
)
"""What may end without a line that says so, with what it hangs under; calls may not."""
_CALLS: Final[Mapping[str, str]] = MappingProxyType({"tool": "tool_name", "memory": "ability", "flow": "flow"})
_LATEST: Final = 4096


class Source(Protocol):
    """What is known beside the ledger."""

    def providers(self, charter: str) -> Mapping[str, str]:
        """Return the provider of each model in a charter."""

    def layer(self, event_type: str, charter: str = "") -> str | None:
        """Return the layer of an event type; of a plugin's own as *charter* (a digest) declares it."""


@attrs.define
class Made:
    """How a span begins."""

    name: str
    attributes: dict[str, Any] = attrs.field(factory=dict)
    client: bool = False
    error: str = ""


class Shape:
    """The shapes of one ledger's spans; it remembers what earlier events say about later ones."""

    def __init__(self, source: Source, *, contents: bool) -> None:
        self._source, self._contents = source, contents
        self._charter = ""
        self._judged: OrderedDict[tuple[str | None, str], dict[str, Any]] = OrderedDict()
        self._wanted: OrderedDict[str, list[tuple[str, str]]] = OrderedDict()
        self._approved: OrderedDict[str, str] = OrderedDict()
        self._shapes: Mapping[str, Callable[[Recorded, Object], Made]] = {
            "session.start": self._session,
            "user.message": self._turn,
            "skill.invoke": lambda _, payload: Made(f"skill {_word(payload, 'skill')}"),
            "agent.transition": self._role,
            "llm.request": self._chat,
            "tool.call": self._call,
            "memory.call": self._call,
            "flow.call": self._call,
            "tool.denied": self._denied,
            "approval.requested": self._approval,
            "task.started": lambda _, payload: Made(f"task {_word(payload, 'task')}"),
            "action.received": lambda _, payload: Made(f"action {_word(payload, 'action')}"),
            "system.boot": lambda _, payload: Made("process", _own(payload, "process_id", "kind", "kernel")),
            "ledger.checkpoint": lambda _, payload: Made(
                "checkpoint", _own(payload, "origin", "size", "root", "why", under="checkpoint.")
            ),
            "ledger.witnessed": lambda _, payload: Made("witnessed", _own(payload, "size", "witness")),
        }

    # --- beginnings ---------------------------------------------------------------------------------------------------

    def begin(self, recorded: "Recorded") -> Made | None:
        """Return how the span begins that an event is; ``None`` for one that is none."""
        event = recorded.event
        if event.type not in CLOSES and event.type not in POINTS:
            return None
        shape = self._shapes.get(event.type)
        made = shape(recorded, event.payload) if shape else Made(event.type)
        made.attributes |= self._common(recorded)
        return made

    def links(self, recorded: "Recorded") -> list[str]:
        """Return the foreign trace that an event names, for the span that it is in."""
        parent = recorded.event.payload.get("traceparent") if recorded.event.type == "session.linked" else None
        return [parent] if isinstance(parent, str) else []

    def alone(self, recorded: "Recorded") -> Made:
        """Return the span that an event is which is none, and has none above it that is open."""
        return Made(recorded.event.type, {**self._common(recorded), **self.note(recorded)})

    def _common(self, recorded: "Recorded") -> dict[str, Any]:
        event = recorded.event
        told_ = {
            "session.id": recorded.session,
            "seq": event.seq,
            "event_type": event.type,
            "layer": self._source.layer(event.type, self._charter),
            "actor": event.actor,
            "principal": event.principal,
            "hash": recorded.hash or None,
        }
        return {f"deedbook.{name}": value for name, value in told_.items() if value is not None}

    def _session(self, recorded: "Recorded", payload: Object) -> Made:
        self._charter = _word(payload, "charter")
        purpose = _word(payload, "purpose")
        about = _own(payload, "purpose", "charter", "enforcement", "profile", "kernel", "durability")
        return Made(f"session {purpose}".rstrip(), {**about, names.CONVERSATION: recorded.session})

    def _turn(self, recorded: "Recorded", payload: Object) -> Made:
        about = {names.OPERATION: "invoke_agent", names.PROVIDER: names.OWN, names.CONVERSATION: recorded.session}
        if self._contents:
            about[names.INPUT_MESSAGES] = told.said("user", payload.get("text"))
        return Made("invoke_agent", about)

    def _role(self, recorded: "Recorded", payload: Object) -> Made:
        role = _word(payload, "to")
        about = {names.OPERATION: "invoke_agent", names.PROVIDER: names.OWN, names.AGENT: role}
        return Made(f"invoke_agent {role}", {**about, names.CONVERSATION: recorded.session})

    def _chat(self, recorded: "Recorded", payload: Object) -> Made:
        ability, request = _word(payload, "ability"), _object(payload, "request")
        model = _word(request, "model")
        provider = self._source.providers(self._charter).get(ability, "_OTHER")
        about = {
            names.OPERATION: "chat",
            names.PROVIDER: names.PROVIDERS.get(provider, provider),
            names.REQUEST_MODEL: model,
            names.CONVERSATION: recorded.session,
            names.AGENT: request.get("role"),
            names.OUTPUT_TYPE: "json" if "response_schema" in request else "text",
            names.MAX_TOKENS: request.get("max_tokens"),
            names.TEMPERATURE: request.get("temperature"),
            "deedbook.ability": ability,
            **self._verdict(recorded, ability),
        }
        if self._contents:
            about[names.INPUT_MESSAGES] = told.asked(request)
        return Made(f"chat {model}", _plain(about), client=True)

    def _call(self, recorded: "Recorded", payload: Object) -> Made:
        event = recorded.event
        kind = event.type.partition(".")[0]
        ability = _word(payload, _CALLS[kind])
        about: dict[str, Any] = {names.CONVERSATION: recorded.session, "deedbook.kind": kind}
        if kind == "flow":
            about |= {names.OPERATION: "invoke_workflow", names.WORKFLOW: ability, names.PROVIDER: names.OWN}
        else:
            about |= {names.OPERATION: "execute_tool", names.TOOL: ability, names.PROVIDER: names.OWN}
            about[names.TOOL_TYPE] = "datastore" if kind == "memory" else "function"
            about[names.TOOL_CALL] = self._call_id(event.parent, ability)
        about["deedbook.approval"] = self._approved.get(event.parent or "")
        about |= self._verdict(recorded, ability)
        if self._contents:
            about[names.TOOL_ARGUMENTS] = told.text_of(payload.get("args"))
        return Made(f"{about[names.OPERATION]} {ability}", _plain(about))

    def _denied(self, recorded: "Recorded", payload: Object) -> Made:
        name, code = _word(payload, "name"), _word(payload, "code")
        by = payload.get("by")
        who = [f"{kind} {value}" for kind, value in by.items() if kind not in _PLACES] if isinstance(by, dict) else []
        about = {
            names.OPERATION: {"model": "chat", "flow": "invoke_workflow"}.get(_word(payload, "kind"), "execute_tool"),
            names.PROVIDER: names.OWN,
            names.CONVERSATION: recorded.session,
            names.TOOL: name,
            names.ERROR: code,
            **self._verdict(recorded, name),
            "deedbook.decision": "deny",
            "deedbook.denied.by": ", ".join(who) or "door",
            "deedbook.denied.code": code,
        }
        if isinstance(by, dict):
            about |= _own(by, "rule", "place", under="denied.")
        if self._contents:
            about |= {"deedbook.denied.reason": told.text_of(payload.get("reason"))}
            about |= {names.TOOL_ARGUMENTS: told.text_of(payload["args"])} if "args" in payload else {}
        return Made(f"{about[names.OPERATION]} {name}", _plain(about), error=code)

    def _approval(self, recorded: "Recorded", payload: Object) -> Made:
        about = _own(payload, "approval", "name", "kind", "effects", "requested", "expires", "call", under="approval.")
        return Made(f"approval {_word(payload, 'name')}", {**about, names.CONVERSATION: recorded.session})

    # --- ends ---------------------------------------------------------------------------------------------------------

    def end(self, span: "Span", recorded: "Recorded") -> None:
        """Add to *span* what the event says that ends it."""
        event, payload = recorded.event, recorded.event.payload
        failed = event.type.endswith(".error")
        outcome = _word(payload, "outcome") if failed else "ok"
        about = {
            "deedbook.outcome": outcome if event.type.partition(".")[0] in ("tool", "llm", "flow", "memory") else None,
            "deedbook.outcome.seq": event.seq,
            "deedbook.outcome.span_id": event.span,
            "deedbook.outcome.hash": recorded.hash or None,
            "deedbook.late": True if payload.get("late") is True else None,
        }
        span.attributes |= _plain(about)
        if failed:
            span.error = _word(payload, "code")
            span.attributes[names.ERROR] = span.error
            span.attributes |= (
                {"deedbook.error.message": told.text_of(payload.get("message"))} if self._contents else {}
            )
        self._ended(span, recorded, payload)

    def _ended(self, span: "Span", recorded: "Recorded", payload: Object) -> None:
        match recorded.event.type:
            case "llm.response":
                self._answered(span, recorded.event.span, _object(payload, "response"))
            case "tool.result" | "memory.result" | "flow.result" if self._contents:
                span.attributes[names.TOOL_RESULT] = told.text_of(payload.get("result"))
            case "agent.reply" if self._contents:
                span.attributes[names.OUTPUT_MESSAGES] = told.said("assistant", payload.get("reply"))
            case "approval.granted" | "approval.refused" | "approval.answered" as kind:
                _keep(self._approved, recorded.event.span, _word(payload, "approval"))
                answer = payload.get("answer", kind.partition(".")[2])
                span.attributes |= {"deedbook.approval.outcome": answer, **_own(payload, "approver", under="approval.")}
            case "approval.expired" | "approval.withdrawn" as kind:
                span.attributes["deedbook.approval.outcome"] = kind.partition(".")[2]
            case "session.end" | "skill.complete" if payload.get("ok") is False:
                span.error = _word(payload, "reason")[:80]
                span.attributes[names.ERROR] = span.error

    def _answered(self, span: "Span", event: str, response: Object) -> None:
        usage, calls = _object(response, "usage"), response.get("tool_calls")
        reason = response.get("finish_reason")
        about = {
            names.RESPONSE_MODEL: response.get("model"),
            names.FINISH_REASONS: [reason] if isinstance(reason, str) else None,
            names.INPUT_TOKENS: usage.get("input_tokens"),
            names.OUTPUT_TOKENS: usage.get("output_tokens"),
            names.CACHED_TOKENS: usage.get("cached_input_tokens"),
            "deedbook.cost_usd": usage.get("cost_usd"),
        }
        span.attributes |= _plain(about)
        wanted = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        _keep(self._wanted, event, [(_word(call, "name"), _word(call, "id")) for call in wanted])
        if self._contents:
            span.attributes[names.OUTPUT_MESSAGES] = told.answered(response)

    def lose(self, span: "Span") -> None:
        """Say of *span*, a call, that nobody knows how it ended."""
        span.error = "OUTCOME_UNKNOWN"
        span.attributes |= {names.ERROR: span.error, "deedbook.outcome": "unknown"}

    # --- what happens within ------------------------------------------------------------------------------------------

    def note(self, recorded: "Recorded") -> dict[str, Any]:
        """Return the attributes of an event that is no span; what judged a call is kept for the call."""
        event, payload = recorded.event, recorded.event.payload
        about: dict[str, Any] = {
            "deedbook.seq": event.seq,
            "deedbook.layer": self._source.layer(event.type, self._charter),
        }
        if event.type in _JUDGING:
            who = _JUDGING[event.type]
            asked = payload.get("asked")
            ids = [_word(each, who) for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
            about |= {"deedbook.decision": _word(payload, "decision"), f"deedbook.{who}.ids": ids}
            about |= {"deedbook.hook.event": payload.get("event")} if who == "hook" else {}
            ability = payload.get("ability")
            if isinstance(ability, str) and payload.get("event", "PreToolUse") == "PreToolUse":
                judged = self._judged.setdefault((event.parent, ability), {"decisions": []})
                judged[f"deedbook.{who}.ids"] = ids
                judged["decisions"].append(_word(payload, "decision"))
                _bound(self._judged)
        elif event.type == "schema.violation":
            about |= _own(payload, "subject", "name", "schema")
        return _plain(about)

    def _verdict(self, recorded: "Recorded", ability: str) -> dict[str, Any]:
        """Return how the call was judged that an intent or a denial is about: its siblings just before say it."""
        judged = self._judged.pop((recorded.event.parent, ability), None)
        if judged is None:
            return {}
        decisions = judged.pop("decisions")
        return (
            {"deedbook.decision": max(decisions, key=lambda decision: _RANK.get(decision, 3)), **judged}
            if decisions
            else judged
        )

    def _call_id(self, parent: str | None, ability: str) -> str | None:
        """Return the id that the model's answer has for the call; calls of one name are made in their order."""
        wanted = self._wanted.get(parent or "", [])
        found = next((call for call in wanted if call[0] == ability), None)
        if found:
            wanted.remove(found)
        return found[1] if found else None


_PLACES: Final = ("rule", "place")
_JUDGING: Final[Mapping[str, str]] = MappingProxyType({"hook.fired": "hook", "policy.check": "policy"})
_RANK: Final[Mapping[str, int]] = MappingProxyType({"allow": 0, "transform": 1, "ask": 2, "deny": 3})


def _word(payload: Object, name: str) -> str:
    """Return a name; a sealed one is said to be so."""
    value = payload.get(name, "")
    return value[:200] if isinstance(value, str) else "[sealed]"


def _object(payload: Object, name: str) -> Object:
    value = payload.get(name)
    return value if isinstance(value, dict) else {}


def _own(payload: Object, *members: str, under: str = "") -> dict[str, Any]:
    return _plain({f"deedbook.{under}{name}": payload.get(name) for name in members})


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is no value of an attribute: absent, sealed, or empty."""
    return {
        name: value
        for name, value in attributes.items()
        if (isinstance(value, str | bool | int | float) or (isinstance(value, list) and value)) and value != ""
    }


def _keep(known: "OrderedDict[str, Any]", name: str, value: Any) -> None:
    known[name] = value
    _bound(known)


def _bound(known: "OrderedDict[Any, Any]") -> None:
    if len(known) > _LATEST:
        known.popitem(last=False)
