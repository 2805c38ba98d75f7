"""What handlers are given beside their arguments: a call's context, and for a flow the run with its roles."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import attrs

from . import canonical
from .bindings import Bindings, Caller, Scope
from .context import Recorder, RunContext
from .contracts import Failed, Json, Object, Principal, Skill
from .door import Door
from .errors import Err, IntakeError, fault
from .events import Entry, label
from .handlers import Ticket
from .records import text
from .schema import Schemas, Violation

RECORDABLE: Final = frozenset({"worker.report"})
"""Events that a flow may record itself; everything else is the kernel's to write."""

Show = Callable[[Json], None]
_OVER: Final = Scope("a call that is over", frozenset(), frozenset())


class CallCtx:
    """Implements `contracts.Ctx` for one ticket. *show* takes what a handler wants its caller to see meanwhile."""

    def __init__(self, door: Door, ticket: Ticket, show: Show) -> None:
        self._door = door
        self._ticket = ticket
        self._show = show

    @property
    def principal(self) -> Principal:
        """On whose account the call runs."""
        return self._ticket.caller.principal

    @property
    def session(self) -> str:
        """The session's id."""
        return self._ticket.session

    @property
    def idempotency_key(self) -> str:
        """A name for this one call."""
        return self._ticket.idempotency_key

    def remaining(self) -> float:
        """Return the seconds left; zero when cancelled."""
        return 0.0 if self._ticket.cancelled else self._ticket.deadline - self._door.clock()

    def progress(self, delta: Json) -> None:
        """Show *delta* to the caller."""
        self._show(delta)

    def call(self, ability: str, args: Object) -> Json:
        """Use another ability through the door, as a child of this call."""
        return value_of(self._door.call(self._nested(), ability, dict(args), self._ticket.span))

    async def acall(self, ability: str, args: Object) -> Json:
        """Do what `call` does, from a coroutine."""
        return value_of(await self._door.acall(self._nested(), ability, dict(args), self._ticket.span))

    def _nested(self) -> Caller:
        """Return the caller of a nested call, scoped by what the calling ability declares to use."""
        caller = self._ticket.caller
        return attrs.evolve(
            caller, actor="tool", scope=self._while_open(self._ticket.bound.uses), depth=caller.depth + 1
        )

    def _while_open(self, scope: Scope) -> Scope:
        """Return *scope*, or nothing once the call has its outcome: a handler may have kept what it was given."""
        return scope if self._ticket.span in self._door.open else _OVER


class FlowRun(CallCtx):
    """Implements `contracts.Run`: a flow keeps the scope of its skill, hands over to roles, and tells the story.

    *before* is the state of the session's last context: a new one begins only when that has ended.
    """

    def __init__(self, door: Door, ticket: Ticket, show: Show, schemas: Schemas, before: RunContext | None) -> None:
        super().__init__(door, ticket, show)
        self.schemas = schemas
        self.skill: Skill | None = door.bindings.skills.get(ticket.caller.skill or "")
        self.context = Recorder(self._write_context, before)
        self.context.create(dict(ticket.args), ticket.caller.principal.via)
        self._role: str | None = None

    def agent(self, role: str) -> "RoleAgent":
        """Hand over to *role* and return it at work; raises `Failed` if it has no instructions."""
        instructions = self._door.bindings.charter.document["instructions"].get(role)
        if instructions is None:
            raise Failed("BINDING_INVALID", f"role {role!r} has no instructions; add .system/agents/{role}.md")
        span = self.write("agent.transition", "runtime", {"from": self._role, "to": role}, self._ticket.span)
        self._role = role
        return RoleAgent(self, role, instructions, span)

    def record(self, event_type: str, payload: Object) -> None:
        """Record a worker's report; it is checked first."""
        if event_type not in RECORDABLE:
            allowed = ", ".join(sorted(RECORDABLE))
            raise Failed("NOT_AVAILABLE", f"a flow cannot record {event_type!r}; it may record {allowed}")
        found = self.schemas.validator("worker_report_v1").violations(dict(payload))
        if found:
            raise Failed("SCHEMA_VIOLATION", f"{event_type}: {found[0].path}: {found[0].message}")
        self.write(event_type, "agent", payload, self._ticket.span)

    def write(self, event_type: str, actor: str, payload: Object, cause: str) -> str:
        """Append one event and return its span."""
        span = self._door.ledger.span()
        who = label(event_type, actor, self.principal.id)
        self._door.ledger.append([Entry(who, span, cause, canonical.encode(dict(payload)))])
        return span

    @property
    def door(self) -> Door:
        """The session's door."""
        return self._door

    def caller_for(self, role: str) -> Caller:
        """Return *role* as a caller: inside the skill's scope, with its own model."""
        caller = self._ticket.caller
        principal = Principal(f"agent:{role}", "run", frozenset(), caller.principal.id)
        return Caller(
            principal=principal,
            actor="agent",
            scope=self._while_open(skill_scope(self.skill, self._door.bindings, role)),
            role=role,
            skill=caller.skill,
            depth=caller.depth + 1,
        )

    def _nested(self) -> Caller:
        """Return the flow itself as a caller: it keeps its skill's scope, and models are for roles."""
        caller = self._ticket.caller
        scope = self._while_open(skill_scope(self.skill, self._door.bindings, None))
        return attrs.evolve(caller, actor="agent", scope=scope, depth=caller.depth + 1)

    def _write_context(self, event_type: str, payload: Object) -> None:
        self.write(event_type, "runtime", payload, self._ticket.span)


class RoleAgent:
    """Implements `contracts.Agent`: one role at work, from its hand-over (*span*) on."""

    def __init__(self, run: FlowRun, role: str, instructions: str, span: str) -> None:
        self.role = role
        self.instructions = instructions
        self._run = run
        self._door = run.door
        self._span = span
        self._answer = span
        self._offered: list[Mapping[str, Any]] = []

    def complete(self, request: Object) -> dict[str, Any]:
        """Ask the role's model through the door."""
        bindings = self._door.bindings
        ability = bindings.tier(self.role)
        skill = self._run.skill
        full = {
            **request,
            "model": bindings.charter.document["models"].get(ability.partition("/")[2], ""),
            "role": self.role,
            "skill": _card(skill) if skill else None,
            "schema_version": "v2",
        }
        self._offered = []
        opened = self._door.before(self._run.caller_for(self.role), ability, full, self._span)
        if isinstance(opened, Err):
            raise failure(opened)
        response: Any = value_of(self._door.perform(opened.value))
        self._answer = opened.value.outcome or self._span
        self._offered = canonical.decode(canonical.encode(response["tool_calls"]))
        return response  # type: ignore[no-any-return]

    def use(self, tool_call: Object) -> Json:
        """Perform one of the last response's tool calls, once, as its child."""
        caller = self._run.caller_for(self.role)
        wanted = {name: tool_call.get(name) for name in ("id", "name", "args")}
        if wanted not in self._offered:
            why = f"{wanted['name']!r} is not a call that the last response asked for, or it was made"
            error = fault("TOOL_NOT_ALLOWED", why)
            raise failure(self._door.refuse(caller, str(wanted["name"]), error, self._answer))
        offered = self._offered.pop(self._offered.index(wanted))
        return value_of(self._door.call(caller, offered["name"], offered["args"], self._answer))

    def message(self, schema: str, response: Object) -> dict[str, Any]:
        """Return the response's text as the JSON that *schema* demands; what does not fit is recorded."""
        try:
            value = canonical.parse(response["text"])
        except IntakeError as problem:
            self._malformed(schema, (Violation("$", str(problem)),))
        found = self._run.schemas.validator(schema).violations(value)
        if found:
            self._malformed(schema, found)
        return value  # type: ignore[no-any-return]

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools in scope, in a stable order."""
        abilities = self._door.bindings.abilities
        scope = self._run.caller_for(self.role).scope
        return [
            {"name": name, "description": bound.summary, "schema_in": dict(bound.takes_document)}
            for name, bound in sorted(abilities.items())
            if bound.kind != "model" and scope.allows(bound)
        ]

    def _malformed(self, schema: str, found: tuple[Violation, ...]) -> NoReturn:
        errors = [{"path": text(each.path), "message": text(each.message)} for each in found[:20]]
        payload = {"subject": "message", "name": self.role, "role": self.role, "schema": schema, "errors": errors}
        self._run.write("schema.violation", "runtime", payload, self._answer)
        first = found[0]
        raise Failed("MALFORMED_AGENT_MESSAGE", f"the {self.role}'s {schema}: {first.path}: {first.message}")


def skill_scope(skill: Skill | None, bindings: Bindings, role: str | None) -> Scope:
    """Return what may be used under *skill* (none: nothing), with the model of *role*."""
    why = f"what skill {skill.name} allows" if skill else "what a run without a skill allows, which is nothing"
    models = frozenset({bindings.tier(role)} if role else ())
    return Scope(why, skill.allowed if skill else frozenset(), models)


def value_of(result: Any) -> Json:
    """Return the value of an `Ok`; raise `Failed` for an `Err`."""
    if isinstance(result, Err):
        raise failure(result)
    return result.value  # type: ignore[no-any-return]


def failure(result: Err) -> Failed:
    """Return a domain failure as the exception that plugins know."""
    error = result.error
    return Failed(error.code, error.message, retryable=error.retryable)


def _card(skill: Skill) -> dict[str, Any]:
    return {"name": skill.name, "description": skill.description, "metadata": dict(skill.metadata)}
