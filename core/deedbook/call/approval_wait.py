"""Wait for a person's answer to a pending call, apply it and continue, or give up.

Everything is recorded in the session's ledger: requested, granted, refused, expired or withdrawn. Without an answer in
time the call is denied as one that needs a person, and the request stays in the queue, where it can be performed later.
"""

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from threading import get_ident
from typing import Final, TypeAlias

import attrs

from deedbook.contract import Event, Object
from deedbook.format import canonical
from deedbook.format.errors import (
    ApprovalError,
    DeedbookError,
    DomainError,
    Err,
    LedgerError,
    Result,
    fault,
    recordable,
)
from deedbook.format.events import Entry, label
from deedbook.format.reader import read
from deedbook.ledger.ledger import Ledger
from deedbook.policy.bound import BoundAbility, Caller
from deedbook.policy.gates import Clock, source_place
from deedbook.policy.judge import Verdict
from deedbook.policy.requests import call_digest

from .handlers import RunSuspended, Ticket
from .pending_calls import Grant, PendingCall, PendingCalls
from .queue import ApprovalRequest
from .records import CallRecorder
from .run_requests import FORK_OVER, RUN_OVER, RunRequests

PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25

OpenResult: TypeAlias = Result[Ticket] | PendingCall
JudgeAgain: TypeAlias = Callable[[PendingCall, str, Grant | None], OpenResult]
"""Judges a pending call again, caused by the span of its grant, or without one by what first caused it."""


class ApprovalWait:
    """The door's side of pending calls; *judge_again* judges one again. Once *closed*, no call waits any more.

    If the session *suspends*, a call of a run that is not answered in time suspends the run.
    """

    def __init__(
        self,
        pending_calls: PendingCalls,
        ledger: Ledger,
        recorder: CallRecorder,
        clock: Clock,
        *,
        judge_again: JudgeAgain,
        closed: bool = False,
        suspends: bool = False,
    ) -> None:
        self.closed = closed
        self._suspends = suspends
        self._pending_calls, self._ledger, self._recorder, self._clock = pending_calls, ledger, recorder, clock
        self._judge_again = judge_again
        self._unsettled: dict[str, PendingCall] = {}  # requests without an answer, by span, from before their record

    def use(self, grant: Grant, session: str, now: str) -> None:
        """Mark *grant* as used by *session*, durably; raises `ApprovalError` if it has been used already."""
        self._pending_calls.use(grant, session, now)

    def request_approval(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, given: bytes, cause: str, entries: list[Entry]
    ) -> OpenResult:
        """Record the request in the session, then in the queue for approvers; otherwise the call is denied.

        A request for exactly this call is not made twice: an approval is used, and a request that still waits is
        shared.
        """
        span, now = self._ledger.span(), self._ledger.now()
        when, waits = (self._ledger.session_id, span, now), self._suspends and caller.run is not None
        request = self._pending_calls.request(verdict, bound, caller, given, when, waits=waits)
        pending = self._unsettled[span] = PendingCall(verdict, bound, caller, given, cause, span, request)
        try:
            pending = attrs.evolve(pending, queue=self._pending_calls.open_queue(now, caller))
        except LedgerError as problem:
            self._record(pending, entries)
            return self.deny(pending, problem.error)
        try:
            return self._file_or_reuse(pending, entries, now)
        except BaseException:
            pending.close()
            raise

    def _file_or_reuse(self, pending: PendingCall, entries: list[Entry], now: str) -> OpenResult:
        """Use a request for the same call; if there is none, file this one."""
        assert pending.queue
        found = self._pending_calls.find_existing(pending.request, pending.queue, now)
        if found is None:
            self._record(pending, entries)
            try:
                found = self._pending_calls.file(pending.request, pending.queue, now)
            except LedgerError as problem:
                pending.close()
                return self.deny(pending, problem.error)
            if found is None:
                return self._keep_queue(pending)
            entries = [self._withdrawal(pending, f"request {found.request['approval']} asks for the same already")]
            pending = attrs.evolve(pending, span=self._ledger.span())
        pending = self._unsettled[pending.span] = attrs.evolve(pending, request=found.request, shared=True)
        self._record(pending, entries)
        if found.grant is None:
            return self._keep_queue(pending)
        self._unsettled.pop(pending.span, None)
        try:
            return self._judge_again(pending, self.record_grant(pending.caller, pending.span, found.grant), found.grant)
        finally:
            pending.close()

    def _keep_queue(self, pending: PendingCall) -> PendingCall:
        """Return the pending call, without the queue if the caller does not wait."""
        if self._wait_seconds(pending) > 0:
            return pending
        pending.close()
        return attrs.evolve(pending, queue=None)

    def _wait_seconds(self, pending: PendingCall) -> float:
        own = pending.caller.wait_seconds
        return self._pending_calls.wait_seconds if own is None else own

    def _record(self, pending: PendingCall, entries: list[Entry]) -> None:
        asked = self._recorder.note(
            "approval.requested", "policy", pending.caller, pending.cause, pending.request, pending.span
        )
        self._ledger.append([*entries, asked], durable=True)

    def _withdrawal(self, pending: PendingCall, reason: str) -> Entry:
        payload = {"approval": pending.request["approval"], "reason": reason}
        return self._recorder.note("approval.withdrawn", "runtime", pending.caller, pending.span, payload)

    def deny(self, pending: PendingCall, error: DomainError, entries: list[Entry] | None = None) -> Err:
        """Record that the pending call is denied, after *entries*, and return why."""
        verdict = pending.verdict.deny(error.code, error.message, pending.verdict.by)
        denied = self._recorder.denial(verdict, pending.caller, pending.bound.id, pending.cause)
        self._unsettled.pop(pending.span, None)
        self._ledger.append([*(entries or ()), denied])
        details = {"signals": verdict.signals, "approval": pending.request["approval"]}
        return Err(attrs.evolve(error, place=source_place(verdict.by)), details)

    def deny_suspended(self, asked: Event, caller: Caller, error: DomainError, record: Object) -> Err:
        """Record that the call of a suspended run is denied: a person refused the request *asked* (*record*)."""
        request = asked.payload
        payload = {name: request[name] for name in ("args", "by", "kind", "name") if name in request}
        payload |= {"code": error.code, "reason": recordable(error.message)}
        refused = self._recorder.note("approval.refused", "runtime", caller, asked.span, record)
        denied = self._recorder.note("tool.denied", "policy", caller, asked.parent or "", payload)
        self._ledger.append([refused, denied])
        return Err(error)

    def deferral(self, verdict: Verdict, bound: BoundAbility, caller: Caller, cause: str) -> Entry:
        """Return the event that the agent, which performs the effect, must ask a person about the call."""
        by = {} if verdict.by is None else {"by": dict(verdict.by)}
        call = call_digest(bound.id, verdict.raw, caller.principal.id)
        payload = {"kind": bound.kind, "name": bound.id, "reason": recordable(verdict.reason), "call": call, **by}
        return self._recorder.note("approval.deferred", "policy", caller, cause, payload)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, pending: PendingCall) -> Result[Ticket]:
        """Wait for the answer and continue with it; an interrupt withdraws the request."""
        waiting = self._wait_steps(pending)
        try:
            while True:
                time.sleep(next(waiting))
        except StopIteration as done:
            opened: Result[Ticket] = done.value
            return opened
        finally:
            waiting.close()

    async def await_answer(self, pending: PendingCall, ended: list[Result[Ticket]]) -> None:
        """Wait like `wait` without blocking the loop; the result is added to *ended*, also when cancelled."""
        from asyncio import sleep

        from deedbook.format.loops import off_loop

        self._unsettled[pending.span] = pending = attrs.evolve(pending, thread=0)  # a task is cancelled, not a thread
        waiting = self._wait_steps(pending)

        def step() -> float | None:
            try:
                return next(waiting)
            except StopIteration as done:
                ended.append(done.value)
                return None

        try:
            pause = await off_loop(step)
            while pause is not None:
                await sleep(pause)
                pause = await off_loop(step)
        finally:
            waiting.close()

    def withdraw(self, pending: PendingCall, reason: str = "the caller does not wait any more") -> None:
        """Withdraw the request once, here and, if it was filed here, in the queue; errors of recording are ignored."""
        if self._unsettled.pop(pending.span, None) is None:
            return
        if not pending.shared:
            with suppress(DeedbookError):
                self._pending_calls.withdraw(pending.request, reason)
        with suppress(DeedbookError):
            self._ledger.append([self._withdrawal(pending, reason)], durable=True)
            self.deny(pending, fault("CANCELLED", f"{pending.bound.id} was cancelled while it waited for a person"))

    def end_run(self, run: str, code: str | None) -> None:
        """Withdraw what was requested inside *run*, which ends with the error *code*; all for an empty text.

        A run that ends because it needs a person leaves its requests open. Raises `DeedbookError`.
        """
        made = RunRequests(read(self._ledger.place))
        if run and (code == "NEEDS_HUMAN" or made.needs_person(run)):
            return
        asked = {str(each.payload["approval"]): each for each in made.within(run)}
        reason = RUN_OVER if run else FORK_OVER
        withdrawn = self._pending_calls.withdraw_open(list(asked), reason)
        entries = [self._withdrawal_of(asked[each], each, reason) for each in withdrawn]
        if entries:
            self._ledger.append(entries, durable=True)

    def _withdrawal_of(self, asked: Event, identity: str, reason: str) -> Entry:
        who = label("approval.withdrawn", "runtime", asked.principal)
        payload = canonical.encode_payload({"approval": identity, "reason": reason})
        return Entry(who, self._ledger.span(), asked.span, payload)

    def abandon(self, caller: Caller) -> None:
        """Withdraw what *caller* has requested in this thread and does not wait for: an interrupt came before.

        The interrupt may have come before the request was recorded or filed. Errors of reading and recording are
        ignored.
        """
        for pending in list(self._unsettled.values()):
            if pending.caller is not caller or pending.thread != get_ident():
                continue
            with suppress(DeedbookError, OSError):
                events = list(read(self._ledger.place))
                is_recorded = any(event.span == pending.span for event in events)
                if is_recorded and not any(event.parent == pending.span for event in events):
                    is_filed = not pending.shared and self._pending_calls.is_filed(pending.request)
                    self.withdraw(attrs.evolve(pending, shared=not is_filed))
            self._unsettled.pop(pending.span, None)
            pending.close()

    def _wait_steps(self, pending: PendingCall) -> Generator[float, None, Result[Ticket]]:
        """Wait for the answer, yielding how many seconds to pause, and continue with it."""
        deadline = self._clock() + self._wait_seconds(pending)
        try:
            while True:
                try:
                    opened = self._apply_answer(pending, (yield from self._answer(pending, deadline)))
                finally:
                    pending.close()
                if not isinstance(opened, PendingCall):
                    return opened
                pending = opened
        except LedgerError as problem:
            return Err(problem.error)

    def _answer(self, pending: PendingCall, deadline: float) -> Generator[float, None, ApprovalRequest | None]:
        """Return the answered request, or ``None`` if there was no answer in time."""
        pause, expires = PAUSE, pending.request["expires"]
        try:
            while (found := pending.poll_answer()) is None and self._clock() < deadline and not self.closed:
                if self._ledger.now() >= expires:
                    break
                yield pause
                pause = min(pause * 1.5, LONGEST_PAUSE)
        except BaseException:
            self.withdraw(pending)
            raise
        return found

    # --- the answer ---------------------------------------------------------------------------------------------------

    def _apply_answer(self, pending: PendingCall, found: ApprovalRequest | None) -> OpenResult:
        """Apply the answer and judge the call again; without an answer deny it, as at once."""
        if self.closed:
            self.withdraw(pending, "the session has ended")
            return Err(fault("SESSION_ENDED", f"session {self._ledger.session_id} has ended"))
        now = self._ledger.now()
        if found is None or pending.queue is None:
            return self.deny_late(pending, now)
        self._unsettled.pop(pending.span, None)  # after an answer there is nothing to withdraw
        try:
            grant = self._pending_calls.take(found, pending.queue, now)
        except ApprovalError as problem:
            if pending.shared and found.withdrawn:  # by the caller who filed it; this caller now files its own
                self._ledger.append([self._withdrawal(pending, "who asked first does not wait any more")], durable=True)
                return self._judge_again(pending, pending.cause, None)
            return self._deny_refused(pending, found, problem.error)
        return self._judge_again(pending, self.record_grant(pending.caller, pending.span, grant), grant)

    def record_grant(self, caller: Caller, cause: str, grant: Grant) -> str:
        """Record that the request was approved, durably, and return the span of that event."""
        entry = self._recorder.note("approval.granted", "runtime", caller, cause, grant.record)
        self._ledger.append([entry], durable=True)
        return entry.span

    def deny_late(self, pending: PendingCall, now: str) -> Err:
        """Deny a call that was not decided in time, or cannot be decided."""
        identity, expires = pending.request["approval"], pending.request["expires"]
        if now < expires:
            error = fault("NEEDS_HUMAN", f"{pending.verdict.reason}; approval {identity} waits for an answer")
            if self._suspends and pending.caller.run is not None:
                raise RunSuspended(error, identity)
            return self.deny(pending, error)
        payload = {"approval": identity, "expires": expires}
        expired = self._recorder.note("approval.expired", "runtime", pending.caller, pending.span, payload)
        again = "begin the fork again" if "fork_of" in pending.request else "make the call again"
        why = f"request {identity} has expired; {again}"
        return self.deny(pending, fault("APPROVAL_EXPIRED", why), [expired])

    def _deny_refused(self, pending: PendingCall, found: ApprovalRequest, error: DomainError) -> Err:
        """Deny a call whose approval was refused, has expired, or is invalid."""
        if error.code == "APPROVAL_EXPIRED":
            return self.deny_late(pending, pending.request["expires"])
        entries = []
        if error.code == "APPROVAL_REFUSED" and pending.queue is not None:
            answer = self._pending_calls.describe_answer(found, pending.queue)
            entries = [self._recorder.note("approval.refused", "runtime", pending.caller, pending.span, answer)]
        return self.deny(pending, error, entries)
