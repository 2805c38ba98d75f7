"""The run of a flow: its roles and its typed state."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, NoReturn

from deedbook.contract import Failed, Json, Object, Skill
from deedbook.contract.lifecycle import EVENTS
from deedbook.format import canonical
from deedbook.format.context import Recorder, RunContext
from deedbook.format.errors import Err, IntakeError, fault
from deedbook.format.schema import Schemas, Violation, suggest
from deedbook.policy.bound import Caller
from deedbook.policy.callers import OVER

from .call_context import CallCtx, OpenCall, Show, failure, value_of
from .door import Door
from .handlers import Ticket
from .hooks import HookRunner
from .records import check_record, text

REPORT: Final = "worker.report"
"""The event of the kernel's own catalogue that every flow may record."""


class FlowRun(CallCtx):
    """Implements `flow.Run`: a flow keeps the scope of its skill, hands over to roles, and records the run.

    *before* is the state of the session's last context: a new one begins only when that has ended.
    """

    def __init__(
        self, door: Door, ticket: Ticket, show: Show, schemas: Schemas, before: RunContext | None, hooks: HookRunner
    ) -> None:
        super().__init__(door, ticket, show)
        self._hooks = hooks
        self._work = OpenCall(door, ticket, schemas)
        self._role: str | None = None
        self.context = Recorder(self._write_context, before)
        self.context.create(dict(ticket.args), ticket.caller.principal.via)

    @property
    def skill(self) -> Skill | None:
        """The invoked skill, if there is one."""
        return self._work.skill

    @property
    def signals(self) -> Object:
        """The signals of hooks for the prompt."""
        return self._work.ticket.caller.signals

    def fire(self, event: str, subject: Object) -> Object:
        """Ask the hooks of an event that flows fire, and return the subject as they leave it."""
        life = EVENTS.get(event)
        if life is None or not life.subject:
            may = ", ".join(each.name for each in EVENTS.values() if each.subject)
            raise Failed("NOT_AVAILABLE", f"a flow cannot fire {event!r}{suggest(event, EVENTS)}; it may fire {may}")
        ticket = self._work.ticket
        if ticket.span not in self._work.door.open:
            raise Failed("TOOL_NOT_ALLOWED", f"{event}: {OVER.why} fires nothing")
        missing = ", ".join(sorted(life.subject - subject.keys()))
        if missing:
            raise Failed("SCHEMA_VIOLATION", f"{event}: the subject has no {missing}")
        fired = self._hooks.fire(event, subject, ticket.caller.principal, ticket.span)
        if fired.refusal is not None:
            raise Failed("GATE_DENIED", f"{event}: {fired.refusal}")
        return fired.left

    def agent(self, role: str) -> "RoleAgent":
        """Hand over to *role* and return it; raises `Failed` if it has no instructions."""
        instructions = self._work.door.bindings.instructions(role)
        if instructions is None:
            raise Failed("BINDING_INVALID", f"role {role!r} has no instructions; add .system/agents/{role}.md")
        span = self._work.write("agent.transition", "runtime", {"from": self._role, "to": role})
        self._role = role
        return RoleAgent(self._work, role, instructions, span)

    def record(self, event_type: str, payload: Object) -> None:
        """Record a worker's report, or an event of a type that the flow declares; the payload is checked first."""
        work = self._work
        if event_type == REPORT:
            found = work.faults("worker_report_v1", dict(payload))
            if found:
                raise Failed("SCHEMA_VIOLATION", f"{event_type}: {found[0].path}: {found[0].message}")
        else:
            entry = work.door.bindings.entry_of(work.ticket.bound.id) or {}
            check_record(work.door.bindings, event_type, payload, "/".join(entry["plugin"]))
        work.write(event_type, "agent", payload)

    def _caller(self) -> Caller:
        return self._work.flow()

    def _write_context(self, event_type: str, payload: Object) -> None:
        self._work.write(event_type, "runtime", payload)


class RoleAgent:
    """Implements `flow.Agent`: one role, from its hand-over (*span*) on."""

    def __init__(self, work: OpenCall, role: str, instructions: str, span: str) -> None:
        self.instructions = instructions
        self._work = work
        self._role = role
        self._span = span
        self._answer = span
        self._offered: list[Mapping[str, Any]] = []

    @property
    def role(self) -> str:
        """The role's name."""
        return self._role

    def complete(self, request: Object) -> dict[str, Any]:
        """Ask the role's model through the door."""
        door, skill = self._work.door, self._work.skill
        bindings = door.bindings
        ability = bindings.tier(self._role)
        full = {
            **request,
            "model": bindings.charter.document["models"].get(ability.partition("/")[2], ""),
            "role": self._role,
            "skill": _card(skill) if skill else None,
            "schema_version": "v2",
        }
        self._offered = []
        opened = door.before(self._work.agent(self._role), ability, full, self._span)
        if isinstance(opened, Err):
            raise failure(opened)
        response: Any = value_of(door.perform(opened.value))
        self._answer = opened.value.outcome or self._span
        self._offered = canonical.decode(canonical.encode(response["tool_calls"]))
        return response  # type: ignore[no-any-return]

    def use(self, tool_call: Object) -> Json:
        """Perform one of the last response's tool calls, once, as its child."""
        door, caller = self._work.door, self._work.agent(self._role)
        wanted = {name: tool_call.get(name) for name in ("id", "name", "args")}
        model = str(wanted["name"]).startswith("model/")
        if model or wanted not in self._offered:
            asked = "is not a call that the last response asked for, or it was made"
            why = f"{wanted['name']!r} {'is no tool: models are for roles' if model else asked}"
            error = fault("TOOL_NOT_ALLOWED", why)
            raise failure(door.refuse(caller, str(wanted["name"]), error, self._answer))
        offered = self._offered.pop(self._offered.index(wanted))
        return value_of(door.call(caller, offered["name"], offered["args"], self._answer))

    def message(self, schema: str, response: Object) -> dict[str, Any]:
        """Return the response's text as the JSON that *schema* requires; violations are recorded."""
        try:
            value = canonical.parse(response["text"])
        except IntakeError as problem:
            self._malformed(schema, (Violation("$", str(problem)),))
        found = self._work.faults(schema, value)
        if found:
            self._malformed(schema, found)
        return value  # type: ignore[no-any-return]

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools in scope, in a stable order."""
        bindings = self._work.door.bindings
        names = self._work.agent(self._role).scope.names or frozenset()
        return [
            {"name": name, "description": bound.summary, "schema_in": deepcopy(dict(bound.takes_document))}
            for name in sorted(names)
            if (bound := bindings.find(name)) and bound.kind != "model"
        ]

    def _malformed(self, schema: str, found: tuple[Violation, ...]) -> NoReturn:
        errors = [{"path": text(each.path), "message": text(each.message)} for each in found[:20]]
        payload = {"subject": "message", "name": self._role, "role": self._role, "schema": schema, "errors": errors}
        self._work.write("schema.violation", "runtime", payload, self._answer)
        first = found[0]
        raise Failed("MALFORMED_AGENT_MESSAGE", f"the {self.role}'s {schema}: {first.path}: {first.message}")


def _card(skill: Skill) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "metadata": dict(skill.metadata)}
