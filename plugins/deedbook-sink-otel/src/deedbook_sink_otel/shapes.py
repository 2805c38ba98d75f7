"""The span of each event: its name and attributes at its start, and the additions of its end."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from deedbook import Object

from . import contents as formats
from . import conventions as names

if TYPE_CHECKING:
    from .spans import LedgerEvent, Span

__all__ = ["CLOSES", "POINTS", "SOFT", "LedgerSource", "SpanShapes", "SpanStart"]

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
"""The events that begin a span, and those that may end it; the end hangs under the beginning."""
POINTS: Final = frozenset(
    {"tool.denied", "ledger.created", "ledger.key", "ledger.checkpoint", "ledger.witnessed", "ledger.charter"}
)
"""The events that are a span without duration."""
SOFT: Final = frozenset(
    {"session.start", "user.message", "skill.invoke", "agent.transition", "approval.requested", "system.boot"}
)
"""The spans that may end without a line of their own, together with their parent; calls may not."""
_CALLS: Final[Mapping[str, str]] = MappingProxyType({"tool": "tool_name", "memory": "ability", "flow": "flow"})
_LATEST: Final = 4096


class LedgerSource(Protocol):
    """Information beside the ledger."""

    def list_providers(self, charter: str) -> Mapping[str, str]:
        """Return the provider of each model in a charter."""

    def find_layer(self, event_type: str, charter: str = "") -> str | None:
        """Return the layer of an event type; of a plugin's own as *charter* (a digest) declares it."""


_RUN_ENDS: Final = ("DONE", "FAIL")
"""What the last hand-over of a run leads to instead of a role."""


@attrs.define
class SpanStart:
    """The start of a span."""

    name: str
    attributes: dict[str, Any] = attrs.field(factory=dict)
    client: bool = False
    error: str = ""


class SpanShapes:
    """The shapes of one ledger's spans; it keeps what earlier events contribute to later ones."""

    def __init__(self, source: LedgerSource, *, contents: bool) -> None:
        self._source, self._contents = source, contents
        self._charter = ""
        self._decisions: OrderedDict[tuple[str | None, str], dict[str, Any]] = OrderedDict()
        self._model_calls: OrderedDict[str, list[tuple[str, str]]] = OrderedDict()
        self._approvals: OrderedDict[str, str] = OrderedDict()
        self._shapes: Mapping[str, Callable[[LedgerEvent, Object], SpanStart]] = {
            "session.start": self._build_session,
            "user.message": self._build_turn,
            "skill.invoke": lambda _, payload: SpanStart(f"skill {_get_text(payload, 'skill')}"),
            "agent.transition": self._build_role,
            "llm.request": self._build_chat,
            "tool.call": self._build_call,
            "memory.call": self._build_call,
            "flow.call": self._build_call,
            "tool.denied": self._build_denial,
            "approval.requested": self._build_approval,
            "task.started": lambda _, payload: SpanStart(f"task {_get_text(payload, 'task')}"),
            "action.received": lambda _, payload: SpanStart(f"action {_get_text(payload, 'action')}"),
            "system.boot": lambda _, payload: SpanStart(
                "process", _get_members(payload, "process_id", "kind", "kernel")
            ),
            "ledger.checkpoint": lambda _, payload: SpanStart(
                "checkpoint", _get_members(payload, "origin", "size", "root", "why", under="checkpoint.")
            ),
            "ledger.witnessed": lambda _, payload: SpanStart("witnessed", _get_members(payload, "size", "witness")),
        }

    # --- beginnings --------------------------------------------------------------------------------------------------

    def begin(self, ledger_event: "LedgerEvent") -> SpanStart | None:
        """Return the start of an event's span; ``None`` if the event is no span."""
        event = ledger_event.event
        if event.type not in CLOSES and event.type not in POINTS:
            return None
        if event.type == "agent.transition" and event.payload.get("to") in _RUN_ENDS:
            return None
        shape = self._shapes.get(event.type)
        start = shape(ledger_event, event.payload) if shape else SpanStart(event.type)
        start.attributes |= self._common_attributes(ledger_event)
        return start

    def list_links(self, ledger_event: "LedgerEvent") -> list[str]:
        """Return the foreign trace that an event names, for its span."""
        parent = ledger_event.event.payload.get("traceparent") if ledger_event.event.type == "session.linked" else None
        return [parent] if isinstance(parent, str) else []

    def build_point(self, ledger_event: "LedgerEvent") -> SpanStart:
        """Return the span without duration for an event outside of any open span."""
        return SpanStart(
            ledger_event.event.type, {**self._common_attributes(ledger_event), **self.build_note(ledger_event)}
        )

    def _common_attributes(self, ledger_event: "LedgerEvent") -> dict[str, Any]:
        event = ledger_event.event
        common = {
            "session.id": ledger_event.session,
            "seq": event.seq,
            "event_type": event.type,
            "layer": self._source.find_layer(event.type, self._charter),
            "actor": event.actor,
            "principal": event.principal,
            "hash": ledger_event.hash or None,
        }
        return {f"deedbook.{name}": value for name, value in common.items() if value is not None}

    def _build_session(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        self._charter = _get_text(payload, "charter")
        purpose = _get_text(payload, "purpose")
        attributes = _get_members(payload, "purpose", "charter", "enforcement", "profile", "kernel", "durability")
        return SpanStart(f"session {purpose}".rstrip(), {**attributes, names.CONVERSATION: ledger_event.session})

    def _build_turn(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        attributes = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: names.OWN,
            names.CONVERSATION: ledger_event.session,
        }
        if self._contents:
            attributes[names.INPUT_MESSAGES] = formats.format_message("user", payload.get("text"))
        return SpanStart("invoke_agent", attributes)

    def _build_role(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        role = _get_text(payload, "to")
        attributes = {names.OPERATION: "invoke_agent", names.PROVIDER: names.OWN, names.AGENT: role}
        return SpanStart(f"invoke_agent {role}", {**attributes, names.CONVERSATION: ledger_event.session})

    def _build_chat(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        ability, request = _get_text(payload, "ability"), _get_object(payload, "request")
        model = _get_text(request, "model")
        provider = self._source.list_providers(self._charter).get(ability, "_OTHER")
        attributes = {
            names.OPERATION: "chat",
            names.PROVIDER: names.PROVIDERS.get(provider, provider),
            names.REQUEST_MODEL: model,
            names.CONVERSATION: ledger_event.session,
            names.AGENT: request.get("role"),
            names.OUTPUT_TYPE: "json" if "response_schema" in request else "text",
            names.MAX_TOKENS: request.get("max_tokens"),
            names.TEMPERATURE: request.get("temperature"),
            "deedbook.ability": ability,
            **self._take_decision(ledger_event, ability),
        }
        if self._contents:
            attributes[names.INPUT_MESSAGES] = formats.format_request(request)
        return SpanStart(f"chat {model}", _drop_empty(attributes), client=True)

    def _build_call(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        event = ledger_event.event
        kind = event.type.partition(".")[0]
        ability = _get_text(payload, _CALLS[kind])
        attributes: dict[str, Any] = {names.CONVERSATION: ledger_event.session, "deedbook.kind": kind}
        if kind == "flow":
            attributes |= {names.OPERATION: "invoke_workflow", names.WORKFLOW: ability, names.PROVIDER: names.OWN}
        else:
            attributes |= {names.OPERATION: "execute_tool", names.TOOL: ability, names.PROVIDER: names.OWN}
            attributes[names.TOOL_TYPE] = "datastore" if kind == "memory" else "function"
            attributes[names.TOOL_CALL] = self._take_call_id(event.parent, ability)
        attributes["deedbook.approval"] = self._approvals.get(event.parent or "")
        attributes |= self._take_decision(ledger_event, ability)
        if self._contents:
            attributes[names.TOOL_ARGUMENTS] = formats.format_value(payload.get("args"))
        return SpanStart(f"{attributes[names.OPERATION]} {ability}", _drop_empty(attributes))

    def _build_denial(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        name, code = _get_text(payload, "name"), _get_text(payload, "code")
        by = payload.get("by")
        who = [f"{kind} {value}" for kind, value in by.items() if kind not in _PLACES] if isinstance(by, dict) else []
        attributes = {
            names.OPERATION: {"model": "chat", "flow": "invoke_workflow"}.get(
                _get_text(payload, "kind"), "execute_tool"
            ),
            names.PROVIDER: names.OWN,
            names.CONVERSATION: ledger_event.session,
            names.TOOL: name,
            names.ERROR: code,
            **self._take_decision(ledger_event, name),
            "deedbook.decision": "deny",
            "deedbook.denied.by": ", ".join(who) or "door",
            "deedbook.denied.code": code,
        }
        if isinstance(by, dict):
            attributes |= _get_members(by, "rule", "place", under="denied.")
        if self._contents:
            attributes |= {"deedbook.denied.reason": formats.format_value(payload.get("reason"))}
            attributes |= {names.TOOL_ARGUMENTS: formats.format_value(payload["args"])} if "args" in payload else {}
        return SpanStart(f"{attributes[names.OPERATION]} {name}", _drop_empty(attributes), error=code)

    def _build_approval(self, ledger_event: "LedgerEvent", payload: Object) -> SpanStart:
        attributes = _get_members(
            payload, "approval", "name", "kind", "effects", "requested", "expires", "call", under="approval."
        )
        return SpanStart(
            f"approval {_get_text(payload, 'name')}", {**attributes, names.CONVERSATION: ledger_event.session}
        )

    # --- ends --------------------------------------------------------------------------------------------------------

    def end(self, span: "Span", ledger_event: "LedgerEvent") -> None:
        """Add the attributes of the ending event to *span*."""
        event, payload = ledger_event.event, ledger_event.event.payload
        failed = event.type.endswith(".error")
        outcome = _get_text(payload, "outcome") if failed else "ok"
        attributes = {
            "deedbook.outcome": outcome if event.type.partition(".")[0] in ("tool", "llm", "flow", "memory") else None,
            "deedbook.outcome.seq": event.seq,
            "deedbook.outcome.span_id": event.span,
            "deedbook.outcome.hash": ledger_event.hash or None,
            "deedbook.late": True if payload.get("late") is True else None,
        }
        span.attributes |= _drop_empty(attributes)
        if failed:
            span.error = _get_text(payload, "code")
            span.attributes[names.ERROR] = span.error
            span.attributes |= (
                {"deedbook.error.message": formats.format_value(payload.get("message"))} if self._contents else {}
            )
        self._add_end(span, ledger_event, payload)

    def _add_end(self, span: "Span", ledger_event: "LedgerEvent", payload: Object) -> None:
        match ledger_event.event.type:
            case "llm.response":
                self._add_answer(span, ledger_event.event.span, _get_object(payload, "response"))
            case "tool.result" | "memory.result" | "flow.result" if self._contents:
                span.attributes[names.TOOL_RESULT] = formats.format_value(payload.get("result"))
            case "agent.reply" if self._contents:
                span.attributes[names.OUTPUT_MESSAGES] = formats.format_message("assistant", payload.get("reply"))
            case "approval.granted" | "approval.refused" | "approval.answered" as kind:
                _store(self._approvals, ledger_event.event.span, _get_text(payload, "approval"))
                answer = payload.get("answer", kind.partition(".")[2])
                span.attributes |= {
                    "deedbook.approval.outcome": answer,
                    **_get_members(payload, "approver", under="approval."),
                }
            case "approval.expired" | "approval.withdrawn" as kind:
                span.attributes["deedbook.approval.outcome"] = kind.partition(".")[2]
            case "session.end" | "skill.complete" if payload.get("ok") is False:
                span.error = _get_text(payload, "reason")[:80]
                span.attributes[names.ERROR] = span.error

    def _add_answer(self, span: "Span", event: str, response: Object) -> None:
        usage, calls = _get_object(response, "usage"), response.get("tool_calls")
        reason = response.get("finish_reason")
        attributes = {
            names.RESPONSE_MODEL: response.get("model"),
            names.FINISH_REASONS: [reason] if isinstance(reason, str) else None,
            names.INPUT_TOKENS: usage.get("input_tokens"),
            names.OUTPUT_TOKENS: usage.get("output_tokens"),
            names.CACHED_TOKENS: usage.get("cached_input_tokens"),
            "deedbook.cost_usd": usage.get("cost_usd"),
        }
        span.attributes |= _drop_empty(attributes)
        model_calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        _store(self._model_calls, event, [(_get_text(call, "name"), _get_text(call, "id")) for call in model_calls])
        if self._contents:
            span.attributes[names.OUTPUT_MESSAGES] = formats.format_response(response)

    def mark_unknown(self, span: "Span") -> None:
        """Mark *span*, a call, as having an unknown outcome."""
        span.error = "OUTCOME_UNKNOWN"
        span.attributes |= {names.ERROR: span.error, "deedbook.outcome": "unknown"}

    # --- events within spans -----------------------------------------------------------------------------------------

    def build_note(self, ledger_event: "LedgerEvent") -> dict[str, Any]:
        """Return the attributes of an event that is no span; gate events are kept for their call."""
        event, payload = ledger_event.event, ledger_event.event.payload
        attributes: dict[str, Any] = {
            "deedbook.seq": event.seq,
            "deedbook.layer": self._source.find_layer(event.type, self._charter),
        }
        if event.type in _GATE_EVENTS:
            who = _GATE_EVENTS[event.type]
            asked = payload.get("asked")
            ids = [_get_text(each, who) for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
            attributes |= {"deedbook.decision": _get_text(payload, "decision"), f"deedbook.{who}.ids": ids}
            attributes |= {"deedbook.hook.event": payload.get("event")} if who == "hook" else {}
            attributes |= {"deedbook.policy.subject": _get_text(_get_object(payload, "subject"), "name")}
            ability = payload.get("ability")
            if isinstance(ability, str) and payload.get("event", "PreToolUse") == "PreToolUse":
                decision = self._decisions.setdefault((event.parent, ability), {"decisions": []})
                decision[f"deedbook.{who}.ids"] = ids
                decision["decisions"].append(_get_text(payload, "decision"))
                _limit(self._decisions)
        elif event.type == "schema.violation":
            attributes |= _get_members(payload, "subject", "name", "schema")
        return _drop_empty(attributes)

    def _take_decision(self, ledger_event: "LedgerEvent", ability: str) -> dict[str, Any]:
        """Return the decision about a call, from the gate events just before it."""
        decision = self._decisions.pop((ledger_event.event.parent, ability), None)
        if decision is None:
            return {}
        decisions = decision.pop("decisions")
        return (
            {"deedbook.decision": max(decisions, key=lambda decision: _RANK.get(decision, len(_RANK))), **decision}
            if decisions
            else decision
        )

    def _take_call_id(self, parent: str | None, ability: str) -> str | None:
        """Return the call's id from the model's answer; calls of one name are made in order."""
        model_calls = self._model_calls.get(parent or "", [])
        found = next((call for call in model_calls if call[0] == ability), None)
        if found:
            model_calls.remove(found)
        return found[1] if found else None


_PLACES: Final = ("rule", "place")
_GATE_EVENTS: Final[Mapping[str, str]] = MappingProxyType({"hook.fired": "hook", "policy.check": "policy"})
_RANK: Final[Mapping[str, int]] = MappingProxyType({"allow": 0, "advisory": 1, "transform": 2, "ask": 3, "deny": 4})


def _get_text(payload: Object, name: str) -> str:
    """Return a name; a sealed one is marked."""
    value = payload.get(name, "")
    return value[:200] if isinstance(value, str) else "[sealed]"


def _get_object(payload: Object, name: str) -> Object:
    value = payload.get(name)
    return value if isinstance(value, dict) else {}


def _get_members(payload: Object, *members: str, under: str = "") -> dict[str, Any]:
    return _drop_empty({f"deedbook.{under}{name}": payload.get(name) for name in members})


def _drop_empty(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with a valid value: not absent, sealed, or empty."""
    return {
        name: value
        for name, value in attributes.items()
        if (isinstance(value, str | bool | int | float) or (isinstance(value, list) and value)) and value != ""
    }


def _store(known: "OrderedDict[str, Any]", name: str, value: Any) -> None:
    known[name] = value
    _limit(known)


def _limit(known: "OrderedDict[Any, Any]") -> None:
    if len(known) > _LATEST:
        known.popitem(last=False)
