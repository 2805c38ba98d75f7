"""The context of a call for its handler."""

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from deedbook.contract import Approval, Failed, Json, Object, Principal, Skill
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, Err, Result
from deedbook.format.events import Entry, label
from deedbook.format.schema import Schemas, Violation
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.callers import OVER, as_role, intersect_allowed, narrow_caller, under_call, under_flow, with_skill

from .door import Door
from .handlers import Ticket
from .records import check_record

if TYPE_CHECKING:
    from deedbook.format.context import RunContext
    from deedbook.policy.limits import BranchLimits

Show = Callable[[Json], None]
FindContext = Callable[[Json], "RunContext | None"]


class OpenCall:
    """The kernel's side of one open call: the callers that act for it, and the events recorded under it.

    *cause* is the span under which events stand, by default the call's; *allowed* narrows the scope of a flow. *skill*
    is the one under which a branch works instead of the call's, *limits* are those of the branches around it.
    """

    def __init__(
        self, door: Door, ticket: Ticket, schemas: Schemas | None = None, cause: str = "",
        allowed: Collection[str] | None = None, skill: str | None = None, limits: "tuple[BranchLimits, ...]" = (),
    ) -> None:  # fmt: skip
        self.door, self.ticket, self._schemas, self._allowed = door, ticket, schemas, allowed
        self.cause = cause or ticket.span
        self._limits = limits
        self._callers: dict[tuple[str | None, str], Caller] = {}
        self._within = ticket.caller if skill is None else with_skill(ticket.caller, skill)

    def skill(self, bindings: Bindings) -> Skill | None:
        """Return the skill of the call or branch as *bindings* have it, if there is one."""
        return bindings.skills.get(self._within.skill or "")

    def under(
        self, span: str, allowed: Collection[str] | None, skill: str | None = None,
        limits: "tuple[BranchLimits, ...]" = (),
    ) -> "OpenCall":  # fmt: skip
        """Return the same call with its events under *span*: narrowed to *allowed* and *limits*, and under *skill*."""
        within, skill = intersect_allowed(self._allowed, allowed), skill or self._within.skill
        return OpenCall(self.door, self.ticket, self._schemas, span, within, skill, (*self._limits, *limits))

    def tool(self) -> Caller:
        """Return the call itself as a caller; its scope is what its ability declares to use."""
        return self._open(under_call(self.ticket.caller, self.ticket.bound.uses))

    def flow(self, bindings: Bindings | None = None) -> Caller:
        """Return a flow as a caller: it keeps its skill's scope, and models are for roles.

        *bindings* are those of another charter, for reading what it allowed.
        """
        return self._open(self._find_caller(None, bindings or self.door.bindings))

    def agent(self, role: str, bindings: Bindings | None = None) -> Caller:
        """Return *role* as a caller: inside the skill's scope, with its own model; *bindings* as for `flow`."""
        return self._open(self._find_caller(role, bindings or self.door.bindings))

    def _find_caller(self, role: str | None, bindings: Bindings) -> Caller:
        """Return the caller for a role, or for the flow; a charter always gives the same one."""
        key = role, bindings.charter.digest
        if key not in self._callers:
            within = self._within
            made = (
                under_flow(within, bindings, self.ticket.bound.id) if role is None else as_role(within, role, bindings)
            )
            self._callers[key] = self._narrow(made)
        return self._callers[key]

    def _narrow(self, caller: Caller) -> Caller:
        """Return *caller* as part of this run, with the scope of its branch."""
        inner = attrs.evolve(narrow_caller(caller, self._allowed), run=self.ticket.span)
        return attrs.evolve(inner, limits=(*inner.limits, *self._limits)) if self._limits else inner

    def _open(self, caller: Caller) -> Caller:
        """Return *caller*; once the call has its outcome, its scope is empty."""
        return caller if self.ticket.span in self.door.open else attrs.evolve(caller, scope=OVER)

    def write(self, event_type: str, actor: str, payload: Object, *, cause: str) -> str:
        """Append one event under *cause*, and return its span."""
        span = self.door.ledger.span()
        who = label(event_type, actor, self.ticket.caller.principal.id)
        entry = Entry(who, span, cause, canonical.encode(dict(payload)))
        self.door.ledger.append([entry])
        return span

    def check_record(self, bindings: Bindings, event_type: str, payload: Object) -> None:
        """Check an event that the call's handler records; raises `Failed`."""
        entry: Any = bindings.entry_of(self.ticket.bound.id)
        check_record(bindings, event_type, payload, "/".join(entry["plugin"]))

    def faults(self, schema: str, value: Json) -> tuple[Violation, ...]:
        """Return the violations of *value*."""
        assert self._schemas is not None
        return self._schemas.validator(schema).violations(value)


class CallCtx:
    """Implements `contracts.Ctx` for one ticket. *show* receives what a handler shows its caller meanwhile.

    *find_context* returns the context that the result of a flow refers to.
    """

    def __init__(self, door: Door, ticket: Ticket, show: Show, find_context: FindContext) -> None:
        self._door, self._ticket = door, ticket
        self._show, self._find_context = show, find_context

    @property
    def principal(self) -> Principal:
        """The principal of the call."""
        return self._ticket.caller.principal

    @property
    def session(self) -> str:
        """The session's id."""
        return self._ticket.session

    @property
    def idempotency_key(self) -> str:
        """A name for this one call."""
        return self._ticket.idempotency_key

    @property
    def approval(self) -> Approval | None:
        """The answer of the person who approved the call, if one was asked."""
        return self._ticket.approval

    def remaining(self) -> float:
        """Return the seconds left; zero when cancelled."""
        ticket = self._ticket
        return 0.0 if ticket.cancelled else ticket.deadline - self._door.clock()

    def progress(self, delta: Json) -> None:
        """Show *delta* to the caller."""
        self._show(delta)

    def call(self, ability: str, args: Object) -> Json:
        """Use another ability through the door, as a child of this call."""
        full = self._complete_args(ability, args)
        return self._read_outcome(self._door.call(self._caller(), ability, full, self._ticket.span))

    async def acall(self, ability: str, args: Object) -> Json:
        """Act like `call`, from a coroutine."""
        full = self._complete_args(ability, args)
        return self._read_outcome(await self._door.acall(self._caller(), ability, full, self._ticket.span))

    def load(self, model: str) -> None:
        """Let a model that the call uses import what it needs; that time does not count."""
        from deedbook.policy.completions import Completion

        door, ticket, begun = self._door, self._ticket, self._door.clock()
        with suppress(DeedbookError):  # the call of the model reports it
            bound = door.bindings.find(model) if model in (ticket.bound.uses.names or ()) else None
            if bound is not None and isinstance(bound.handler, Completion):
                bound.handler.load()
        ticket.extend(door.clock() - begun)

    def record(self, event_type: str, payload: Object) -> None:
        """Record an event of a type that the handler declares."""
        work = OpenCall(self._door, self._ticket)
        if work.ticket.span not in work.door.open:
            raise Failed("TOOL_NOT_ALLOWED", f"{event_type}: {OVER.why} records nothing")
        work.check_record(work.door.bindings, event_type, payload)
        work.write(event_type, "runtime", payload, cause=work.ticket.span)

    def _read_outcome(self, result: Result[Json]) -> Json:
        """Return the value of *result*; that of a flow that keeps a context is the outcome of its run."""
        context = None if isinstance(result, Err) else self._find_context(result.value)
        return value_of(result if context is None else context.outcome())

    def _complete_args(self, ability: str, args: Object) -> dict[str, Any]:
        """Return *args*; a request to a model names it as its tier does, unless it names one itself."""
        tiers = self._door.bindings.tiers
        tier = ability.removeprefix("model/")
        return {"model": tiers[tier], **args} if tier != ability and tier in tiers else dict(args)

    def _caller(self) -> Caller:
        return OpenCall(self._door, self._ticket).tool()


class WorkspaceCall(CallCtx):
    """The context of handlers that record in the workspace's ledger: a call's context, and that ledger."""

    def __init__(self, door: Door, ticket: Ticket, show: Show, find: FindContext, ledger: WorkspaceLedger) -> None:
        super().__init__(door, ticket, show, find)
        self.workspace_ledger, self.caller, self.ability = ledger, ticket.caller, ticket.bound.id
        self.raw, self.span, self.trace = ticket.raw, ticket.span, door.ledger.trace_id
        self.charter = door.bindings.charter

    @property
    def state(self) -> Path:
        """The state folder."""
        return Path(self.workspace_ledger.place).parents[1]


def value_of(result: Any) -> Json:
    """Return the value of an `Ok`; raise `Failed` for an `Err`."""
    if isinstance(result, Err):
        raise failure(result)
    return result.value  # type: ignore[no-any-return]


def failure(result: Err) -> Failed:
    """Return a domain failure as the exception that plugins know."""
    error = result.error
    lost = error.code == "OUTCOME_UNKNOWN" or result.details.get("outcome") == "unknown"
    return Failed(error.code, error.message, retryable=error.retryable, retry_after=error.retry_after, lost=lost)
