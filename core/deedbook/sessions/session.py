"""Sessions, each with one ledger file. Everything a session does goes through its door."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs

from deedbook.call.call_context import CallCtx, WorkspaceCall
from deedbook.call.door import Door, FactReader
from deedbook.call.handlers import Outcome, Ticket
from deedbook.call.records import check_record
from deedbook.contract import Event, Json, Object, Principal
from deedbook.format import canonical
from deedbook.format.errors import (
    DeedbookError,
    DomainError,
    Err,
    Ok,
    Result,
    describe,
    fault,
    recordable,
    require_type,
)
from deedbook.format.events import Entry, label
from deedbook.format.reader import read
from deedbook.format.schema import Schemas
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.plugins.features import SessionParts
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.callers import restore_caller, session_caller
from deedbook.policy.requests import principal_json

from .hooks import HookResult, HookRunner, refusal_error

if TYPE_CHECKING:
    from deedbook.call.pending_calls import ForkTerms, Grant, PendingCalls
    from deedbook.format.context import RunContext

    from .prompts import Reply
    from .run_journal import SessionOrigin
    from .runs import Runs

Show = Callable[[Json], None]
T = TypeVar("T")


@attrs.frozen
class SubmittedPrompt:
    """A prompt as hooks left it, their signals (`hooks.HookResult`), and the span of its ``user.message``."""

    prompt: str
    signals: Object
    message: str


class Session:
    """One session, from ``session.start`` to ``session.end``; use it as a context manager.

    *after_prompt*, *before_end* and *after_end* are called around the record of a prompt and of the end.
    *pending_calls* makes the queue for calls that a person must decide, unless these are *deferred* to the caller.
    *origin*: the session that this one continues; *parts* come from features. *past* are the events of a resumed
    session. *mode* is how it runs (`contract.flow.MODES`).
    """

    def __init__(  # noqa: PLR0913 - all but the first four by name
        self,
        bindings: Bindings,
        ledger: Ledger,
        principal: Principal,
        schemas: Schemas,
        *,
        show: Show,
        after_end: Callable[["Session"], None],
        workspace_ledger: WorkspaceLedger,
        pending_calls: "Callable[[ForkTerms | None], PendingCalls]",
        deferred: bool = False,
        after_prompt: Callable[["Session"], None],
        before_end: Callable[["Session"], None],
        origin: "SessionOrigin | None" = None,
        parts: SessionParts = SessionParts(),  # noqa: B008 - an immutable tuple
        past: Sequence[Event] = (),
        mode: str = "interactive",
    ) -> None:
        self.bindings = bindings
        self.ledger = ledger
        self.principal = principal
        self.caller = session_caller(principal, bindings, mode)
        self.ended = self.suspended = False
        self._schemas = schemas
        self._show = show
        self._after_end = after_end
        self._after_prompt = after_prompt
        self._before_end = before_end
        self._origin = origin
        self._facts = _facts_of(ledger, past, parts, self.caller) if bindings.reads else lambda *_: {}
        self.hooks = HookRunner(bindings, ledger, self._facts, time.perf_counter)
        self._workspace_ledger = workspace_ledger
        plain = self._invoke
        invoke = {"tool": plain, "model": plain, "flow": self._invoke_flow, "memory": self._invoke_in_workspace}
        self.door = Door(
            bindings, ledger,
            facts=self._facts, invoke=invoke, clock=time.perf_counter, pending_calls=partial(self._ask, pending_calls),
            deferred=deferred, serve_approved=origin.serve_approved if origin else None, parts=parts,
        )  # fmt: skip
        self._root = self._cause = ""
        self._end_lock = Lock()
        self._runs: Runs | None = None
        self._resumption: tuple[str, Object, str, str | None] | None = None
        self._origin_span = ""

    @property
    def id(self) -> str:
        """The session's id."""
        return self.ledger.session_id

    @property
    def cause(self) -> str:
        """The parent span of the next action: the last submitted message, or the beginning."""
        return self._cause

    @contextmanager
    def under(self, span: str) -> Iterator[None]:
        """Put actions inside the block under *span*; only one thread may act in the session then."""
        before, self._cause = self._cause, span
        try:
            yield
        finally:
            self._cause = before

    # --- life cycle ---------------------------------------------------------------------------------------------------

    def reopen(
        self, root: str, prompt: tuple[str, Object, str, str | None], runs: "Runs", *, has_requests: bool
    ) -> None:
        """Take up the session whose ``session.start`` has the span *root*.

        *prompt* is the text, the signals, the span and the flow of the prompt to go on with; *runs* answers what was
        recorded. *has_requests*: the session has asked for approvals before.
        """
        self._root = self._cause = root
        self._resumption, self._runs = prompt, runs
        self.door.has_past_requests = has_requests
        self.ledger.subscribe(runs.outcomes.step)

    def start(self, purpose: str) -> Result[None]:
        """Write ``session.start`` and the session's origin; ask the hooks. A refusal ends the session."""
        document = self.bindings.charter.document
        who = self.principal
        payload = {
            "kernel": document["kernel"],
            "enforcement": document["enforcement"],
            "charter": self.bindings.charter.digest,
            "profile": document["profile"],
            "durability": document["durability"],
            "principal": principal_json(who),
            "purpose": purpose,
        }
        if self.caller.mode != "interactive":
            payload |= {"mode": self.caller.mode, "schema_version": "v2"}
        self._root = self._cause = self._write("session.start", "runtime", payload, None, principal=None)
        if self._origin is not None:
            self._origin_span = self._write(self._origin.event, "runtime", self._origin.payload, self._root)
        if persona := document.get("persona"):
            bound = {"persona": persona["id"], "version": persona["version"], "digest": persona["digest"]}
            self._write("persona.bound", "runtime", bound, self._root, principal=None)
        fired = self.hooks.session_start(who, self._root)
        if fired.refusal is None:
            return Ok(None)
        self.end(ok=False, reason=f"SessionStart: {fired.refusal}")
        return refusal_error("SESSION_DENIED", fired)

    def end(self, *, ok: bool, reason: str) -> None:
        """Close open tickets as unknown, notify the hooks, write ``session.end``; a second call does nothing."""
        with self._end_lock:
            if self.ended:
                return
            self.ended = True
        self._leave(partial(self._finish, ok=ok, reason=reason))

    def _leave(self, finish: Callable[[], object]) -> None:
        """Write the last event with *finish*, and release the ledger also if that fails."""
        try:
            finish()
        finally:
            try:
                self.ledger.close()
            finally:
                self._after_end(self)

    def _finish(self, *, ok: bool, reason: str) -> None:
        self.door.close()
        if self.door.is_uncertain:
            from deedbook.ledger.recovery import close_lost

            close_lost(self.ledger, read(Path(self.ledger.place)))
        if self._runs is not None:
            self._runs.halt(reason)
        if self._origin is not None and self._origin.fork_of:
            self.door.end_requests("")
        self.hooks.session_stop(self.principal, self._root, ok=ok)
        self._before_end(self)
        self._write("session.end", "runtime", {"ok": ok, "reason": reason}, self._root, principal=None, durable=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.end(ok=True, reason="done")
        elif issubclass(kind, KeyboardInterrupt) and self._runs is not None and self._runs.is_open:
            self.suspend(fault("CANCELLED", "interrupted"))
        elif issubclass(kind, KeyboardInterrupt):
            self.end(ok=False, reason="interrupted")
        else:
            self.end(ok=False, reason=describe(problem) if problem else kind.__name__)

    # --- work ---------------------------------------------------------------------------------------------------------

    def call(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Json]:
        """Use one ability for the session's principal; wait up to *wait* seconds for a person's answer.

        By default the wait of the session applies.
        """
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return self.door.call(self._caller_with_wait(wait), ability, args, self._cause)

    def resume(self, request: Object, grant: "Grant") -> Result[Json]:
        """Perform the pending call of another session that a person approved, once, as its original caller."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        asked = self._write("approval.requested", "policy", request, self._origin_span)
        args = request.get("given", request["args"])
        from deedbook.call.pending_calls import caller_of

        return self.door.resume(restore_caller(caller_of(request), self.bindings), request["name"], args, asked, grant)

    async def acall(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Json]:
        """Act like `call`, from a coroutine."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return await self.door.acall(self._caller_with_wait(wait), ability, args, self._cause)

    def _caller_with_wait(self, wait: float | None) -> Caller:
        return self.caller if wait is None else attrs.evolve(self.caller, wait_seconds=wait)

    def submit(self, prompt: str) -> Result[SubmittedPrompt]:
        """Record a prompt that another program acts on, after asking the hooks; later calls are under it."""
        return self._with_prompt(prompt, self._submit)

    def _submit(self, fired: HookResult) -> Result[SubmittedPrompt]:
        self._cause = self.record_prompt(fired)
        return Ok(SubmittedPrompt(fired.prompt, fired.signals, self._cause))

    # --- effects of another program -----------------------------------------------------------------------------------

    def before(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Ticket]:
        """Decide about a call that its caller makes: a ticket allows it, `after` must follow; *wait* as in `call`."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return self.door.before(self._caller_with_wait(wait), ability, args, self._cause)

    def after(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Record the outcome of a call that `before` allowed, and return what its caller may see."""
        return self.door.after(ticket, outcome)

    async def abefore(self, ability: str, args: Json, *, wait: float | None = None) -> Result[Ticket]:
        """Act like `before`, from a coroutine; a cancelled task gets no ticket and leaves no open call."""
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        return await self.door.abefore(self._caller_with_wait(wait), ability, args, self._cause)

    async def aafter(self, ticket: Ticket, outcome: Outcome) -> Result[Json]:
        """Act like `after`, from a coroutine; a cancelled task still records the outcome."""
        return await self.door.aafter(ticket, outcome)

    def refuse(self, ability: str, error: DomainError) -> Err:
        """Record a call that was refused before it was judged, and return the error."""
        return self.door.refuse(self.caller, ability, error, self._cause)

    def stop(self, *, ok: bool) -> HookResult:
        """Ask the hooks of ``Stop`` whether the caller's loop may continue; raises `LedgerError`."""
        return self.hooks.stop(self.principal, self._cause, ok=ok)

    def fire(self, event: str, subject: Object) -> HookResult:
        """Ask the hooks of an event in the caller's loop; raises `LedgerError`, `IntakeError`."""
        return self.hooks.fire(event, subject, self.principal, self._cause)

    def note(
        self, event_type: str, actor: str, payload: Object, *, cause: str | None = None, durable: bool = False
    ) -> str:
        """Record an event that is not about a call of this session, and return its span.

        It hangs under *cause*, without one under what is done at present. Raises `LedgerError`, `IntakeError`.
        """
        return self._write(event_type, actor, payload, cause or self._cause, durable=durable)

    def record(self, event_type: str, payload: Object) -> str:
        """Record an event of a type that a feature of the charter declares, under the session; return its span.

        Raises `Failed` (``NOT_AVAILABLE``) for another type, and (``SCHEMA_VIOLATION``) for an invalid payload.
        """
        check_record(self.bindings, event_type, payload, "feature")
        return self._write(event_type, "runtime", payload, self._root)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run(self, prompt: str, flow: str | None = None) -> "Result[Reply]":
        """Take a request through hooks, skill and flow to a reply; with *flow*, through that ability without a skill.

        A run that needs a person suspends the session: it gets no end, and `Kernel.resume` goes on with it later.
        """
        return self._with_prompt(prompt, partial(self._run, flow=flow))

    def _run(self, fired: HookResult, *, flow: str | None) -> "Result[Reply]":
        if flow is None and self.bindings.charter.document["flow"] is None:
            why = "no flow is set for this profile; `deedbook init --full` in another folder shows a profile with one"
            return Err(fault("BINDING_INVALID", why))
        if flow is not None and not ((bound := self.bindings.find(flow)) and bound.keeps_context):
            return Err(fault("BINDING_INVALID", f"{flow!r} is no flow that keeps a context, so it cannot answer"))
        return self._reply_to(fired.prompt, fired.signals, self.record_prompt(fired, flow), flow)

    def _reply_to(self, prompt: str, signals: Object, message: str, flow: str | None) -> "Result[Reply]":
        from deedbook.call.handlers import RunSuspended

        from .prompts import PromptRun

        runs = self._open_runs()
        runs.suspends = self.door.suspends = self._origin is None and not self.door.is_deferred
        caller = attrs.evolve(self.caller, signals=signals)
        journal = runs.journal(self.door, self.note, message)
        run = PromptRun(self.hooks, self.principal, caller, message, journal, self.context)
        try:
            return run.run(prompt, flow)
        except RunSuspended as problem:
            self.suspend(problem.error, problem.approval)
            return Err(problem.error, {"approval": problem.approval} if problem.approval else {})

    def go_on(self) -> "Result[Reply]":
        """Go on with the run of a resumed session (`Kernel.resume`), and return its reply."""
        if self.ended or self._resumption is None:
            return Err(fault("SESSION_ENDED", f"session {self.id} has no run to go on with"))
        (prompt, signals, message, flow), self._resumption = self._resumption, None
        try:
            return self._reply_to(prompt, signals, message, flow)
        except DeedbookError as problem:
            return Err(problem.error)

    def suspend(self, error: DomainError, approval: str = "") -> None:
        """Leave the session without an end: its runs can be resumed; a second call does nothing.

        *error* says why, *approval* is the request that a person must answer.
        """
        with self._end_lock:
            if self.ended:
                return
            self.ended = self.suspended = True
        self.door.calls.closed = True
        payload = {"code": error.code, "reason": recordable(error.message, 2000), "approval": approval or None}
        write = partial(self._write, "session.suspended", "runtime", payload, self._root, principal=None, durable=True)
        self._leave(write)

    def context(self, run: str) -> "RunContext | None":
        """Return the context of a run of this session, by the span of its ``flow.call``, as it is now."""
        return self._runs.context(run) if self._runs is not None else None

    def find_context(self, result: Json) -> "RunContext | None":
        """Return the context that the *result* of a flow refers to; ``None`` for another result."""
        return self._runs.find(result) if self._runs is not None else None

    def _with_prompt(self, prompt: str, go: Callable[[HookResult], Result[T]]) -> Result[T]:
        """Ask the hooks about *prompt*, and call *go* with the result."""
        require_type(prompt, (str,), "prompt")
        if self.ended:
            return Err(fault("SESSION_ENDED", f"session {self.id} has ended"))
        try:
            canonical.admit(prompt)
            fired = self.hooks.user_prompt_submit(prompt, self.principal, self._root)
            return refusal_error("PROMPT_DENIED", fired) if fired.refusal is not None else go(fired)
        except DeedbookError as problem:
            return Err(problem.error)

    def record_prompt(self, fired: HookResult, flow: str | None = None) -> str:
        """Record the prompt as hooks left it, notify features, and return the span of its ``user.message``.

        *flow* is the ability that the prompt is for, if it does not go to the profile's own.
        """
        named = {} if flow is None else {"flow": flow, "schema_version": "v2"}
        span = self._write("user.message", "user", {"text": fired.prompt, **named}, self._root)
        self._after_prompt(self)
        return span

    # --- parts --------------------------------------------------------------------------------------------------------

    def _ask(self, pending_calls: "Callable[[ForkTerms | None], PendingCalls]") -> "PendingCalls":
        """Return the queue for calls that a person must decide; those of a fork say so."""
        from deedbook.call.pending_calls import ForkTerms

        if self._origin is None or not self._origin.fork_of:
            return pending_calls(None)
        began = next(iter(read(self.ledger.place))).ts
        return pending_calls(ForkTerms(self.id, self._origin.fork_of, began))

    def _invoke(self, ticket: Ticket) -> Any:
        return ticket.bound.handler(ticket.args, CallCtx(self.door, ticket, self._show, self.find_context))

    def _invoke_in_workspace(self, ticket: Ticket) -> Any:
        ctx = WorkspaceCall(self.door, ticket, self._show, self.find_context, self._workspace_ledger)
        return ticket.bound.handler(ticket.args, ctx)

    def _invoke_flow(self, ticket: Ticket) -> Any:
        from .runs import FlowRun

        return FlowRun(self.door, ticket, self._show, self._schemas, self.hooks, self._open_runs()).invoke()

    def _open_runs(self) -> "Runs":
        from .runs import Runs

        if self._runs is None:
            self._runs = Runs(journal=self._origin.journal) if self._origin else Runs()
            self.ledger.subscribe(self._runs.outcomes.step)
        return self._runs

    def _write(
        self, event_type: str, actor: str, payload: Object, cause: str | None, *,
        principal: str | None = "", durable: bool = False,
    ) -> str:  # fmt: skip
        """Append one event and return its span; *principal* defaults to the session's."""
        span = self.ledger.span()
        who = label(event_type, actor, self.principal.id if principal == "" else principal)
        self.ledger.append([Entry(who, span, cause, canonical.encode_payload(dict(payload)))], durable=durable)
        return span


def _facts_of(ledger: Ledger, past: Sequence[Event], parts: SessionParts, caller: Caller) -> FactReader:
    """Return the reader of a session's facts; only sessions whose gates read facts need it."""
    from .facts import Facts

    return Facts(ledger, past, parts.facts, caller)
