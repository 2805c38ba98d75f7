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
from deedbook.format.events import Entry
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

PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25

OpenResult: TypeAlias = Result[Ticket] | PendingCall
Again: TypeAlias = Callable[[PendingCall, str, Grant | None], OpenResult]
"""Judges a parked call again, caused by the span of its grant, or without one by what first caused it."""


class ApprovalWait:
    """The door's side of pending calls; *again* judges one again. Once *closed*, no call waits any more.

    If the session *suspends*, a call of a run that is not answered in time suspends the run.
    """

    def __init__(
        self,
        pending_calls: PendingCalls,
        ledger: Ledger,
        recorder: CallRecorder,
        clock: Clock,
        *,
        again: Again,
        closed: bool = False,
        suspends: bool = False,
    ) -> None:
        self.closed = closed
        self._suspends = suspends
        self._pending_calls, self._ledger, self._recorder, self._clock = pending_calls, ledger, recorder, clock
        self._again = again
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
        request = self._pending_calls.request(verdict, bound, caller, given, (self._ledger.session_id, span, now))
        parked = self._unsettled[span] = PendingCall(verdict, bound, caller, given, cause, span, request)
        try:
            parked = attrs.evolve(parked, queue=self._pending_calls.open_queue(now, caller))
        except LedgerError as problem:
            self._record(parked, entries)
            return self.deny(parked, problem.error)
        try:
            return self._file_or_reuse(parked, entries, now)
        except BaseException:
            parked.close()
            raise

    def _file_or_reuse(self, parked: PendingCall, entries: list[Entry], now: str) -> OpenResult:
        """Use a request for the same call; if there is none, file this one."""
        assert parked.queue
        found = self._pending_calls.find_standing(parked.request, parked.queue, now)
        if found is None:
            self._record(parked, entries)
            try:
                found = self._pending_calls.file(parked.request, parked.queue, now)
            except LedgerError as problem:
                parked.close()
                return self.deny(parked, problem.error)
            if found is None:
                return self._keep_queue(parked)
            entries = [self._withdrawal(parked, f"request {found.request['approval']} asks for the same already")]
            parked = attrs.evolve(parked, span=self._ledger.span())
        parked = self._unsettled[parked.span] = attrs.evolve(parked, request=found.request, shared=True)
        self._record(parked, entries)
        if found.grant is None:
            return self._keep_queue(parked)
        self._unsettled.pop(parked.span, None)
        try:
            return self._again(parked, self.record_grant(parked.caller, parked.span, found.grant), found.grant)
        finally:
            parked.close()

    def _keep_queue(self, parked: PendingCall) -> PendingCall:
        """Return the pending call, without the queue if the caller does not wait."""
        if self._patience(parked) > 0:
            return parked
        parked.close()
        return attrs.evolve(parked, queue=None)

    def _patience(self, parked: PendingCall) -> float:
        own = parked.caller.patience
        return self._pending_calls.patience if own is None else own

    def _record(self, parked: PendingCall, entries: list[Entry]) -> None:
        asked = self._recorder.note(
            "approval.requested", "policy", parked.caller, parked.cause, parked.request, parked.span
        )
        self._ledger.append([*entries, asked], durable=True)

    def _withdrawal(self, parked: PendingCall, reason: str) -> Entry:
        payload = {"approval": parked.request["approval"], "reason": reason}
        return self._recorder.note("approval.withdrawn", "runtime", parked.caller, parked.span, payload)

    def deny(self, parked: PendingCall, error: DomainError, entries: list[Entry] | None = None) -> Err:
        """Record that the pending call is denied, after *entries*, and return why."""
        verdict = parked.verdict.deny(error.code, error.message, parked.verdict.by)
        denied = self._recorder.denial(verdict, parked.caller, parked.bound.id, parked.cause)
        self._unsettled.pop(parked.span, None)
        self._ledger.append([*(entries or ()), denied])
        details = {"signals": verdict.signals, "approval": parked.request["approval"]}
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

    def wait(self, parked: PendingCall) -> Result[Ticket]:
        """Wait for the answer and continue with it; an interrupt withdraws the request."""
        waiting = self._wait_steps(parked)
        try:
            while True:
                time.sleep(next(waiting))
        except StopIteration as done:
            opened: Result[Ticket] = done.value
            return opened
        finally:
            waiting.close()

    async def await_answer(self, parked: PendingCall, ended: list[Result[Ticket]]) -> None:
        """Wait like `wait` without blocking the loop; the result is added to *ended*, also when cancelled."""
        from asyncio import sleep

        from deedbook.format.loops import off_loop

        self._unsettled[parked.span] = parked = attrs.evolve(parked, thread=0)  # a task is cancelled, not a thread
        waiting = self._wait_steps(parked)

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

    def withdraw(self, parked: PendingCall, reason: str = "the caller does not wait any more") -> None:
        """Withdraw the request once, here and, if it was filed here, in the queue; errors of recording are ignored."""
        if self._unsettled.pop(parked.span, None) is None:
            return
        if not parked.shared:
            with suppress(DeedbookError):
                self._pending_calls.withdraw(parked.request, reason)
        with suppress(DeedbookError):
            self._ledger.append([self._withdrawal(parked, reason)], durable=True)
            self.deny(parked, fault("CANCELLED", f"{parked.bound.id} was cancelled while it waited for a person"))

    def abandon(self, caller: Caller) -> None:
        """Withdraw what *caller* has requested in this thread and does not wait for: an interrupt came before.

        The interrupt may have come before the request was recorded or filed. Errors of reading and recording are
        ignored.
        """
        for parked in list(self._unsettled.values()):
            if parked.caller is not caller or parked.thread != get_ident():
                continue
            with suppress(DeedbookError, OSError):
                events = list(read(self._ledger.place))
                is_recorded = any(event.span == parked.span for event in events)
                if is_recorded and not any(event.parent == parked.span for event in events):
                    is_filed = not parked.shared and self._pending_calls.is_filed(parked.request)
                    self.withdraw(attrs.evolve(parked, shared=not is_filed))
            self._unsettled.pop(parked.span, None)
            parked.close()

    def _wait_steps(self, parked: PendingCall) -> Generator[float, None, Result[Ticket]]:
        """Wait for the answer, yielding how many seconds to pause, and continue with it."""
        deadline = self._clock() + self._patience(parked)
        try:
            while True:
                try:
                    opened = self._apply_answer(parked, (yield from self._answer(parked, deadline)))
                finally:
                    parked.close()
                if not isinstance(opened, PendingCall):
                    return opened
                parked = opened
        except LedgerError as problem:
            return Err(problem.error)

    def _answer(self, parked: PendingCall, deadline: float) -> Generator[float, None, ApprovalRequest | None]:
        """Return the answered request, or ``None`` if there was no answer in time."""
        pause, expires = PAUSE, parked.request["expires"]
        try:
            while (found := parked.poll_answer()) is None and self._clock() < deadline and not self.closed:
                if self._ledger.now() >= expires:
                    break
                yield pause
                pause = min(pause * 1.5, LONGEST_PAUSE)
        except BaseException:
            self.withdraw(parked)
            raise
        return found

    # --- going on -----------------------------------------------------------------------------------------------------

    def _apply_answer(self, parked: PendingCall, found: ApprovalRequest | None) -> OpenResult:
        """Apply the answer and judge the call again; without an answer deny it, as at once."""
        if self.closed:
            self.withdraw(parked, "the session has ended")
            return Err(fault("SESSION_ENDED", f"session {self._ledger.session_id} has ended"))
        now = self._ledger.now()
        if found is None or parked.queue is None:
            return self.deny_late(parked, now)
        self._unsettled.pop(parked.span, None)  # after an answer there is nothing to withdraw
        try:
            grant = self._pending_calls.take(found, parked.queue, now)
        except ApprovalError as problem:
            if parked.shared and found.withdrawn:  # by the caller who filed it; this caller now files its own
                self._ledger.append([self._withdrawal(parked, "who asked first does not wait any more")], durable=True)
                return self._again(parked, parked.cause, None)
            return self._deny_refused(parked, found, problem.error)
        return self._again(parked, self.record_grant(parked.caller, parked.span, grant), grant)

    def record_grant(self, caller: Caller, cause: str, grant: Grant) -> str:
        """Record that the request was approved, durably, and return the span of that event."""
        entry = self._recorder.note("approval.granted", "runtime", caller, cause, grant.record)
        self._ledger.append([entry], durable=True)
        return entry.span

    def deny_late(self, parked: PendingCall, now: str) -> Err:
        """Deny a call that was not decided in time, or cannot be decided."""
        identity, expires = parked.request["approval"], parked.request["expires"]
        if now < expires:
            error = fault("NEEDS_HUMAN", f"{parked.verdict.reason}; approval {identity} waits for an answer")
            if self._suspends and parked.caller.run is not None:
                raise RunSuspended(error, identity)
            return self.deny(parked, error)
        payload = {"approval": identity, "expires": expires}
        expired = self._recorder.note("approval.expired", "runtime", parked.caller, parked.span, payload)
        why = f"request {identity} has expired; make the call again"
        return self.deny(parked, fault("APPROVAL_EXPIRED", why), [expired])

    def _deny_refused(self, parked: PendingCall, found: ApprovalRequest, error: DomainError) -> Err:
        """Deny a call whose approval was refused, has expired, or is invalid."""
        if error.code == "APPROVAL_EXPIRED":
            return self.deny_late(parked, parked.request["expires"])
        entries = []
        if error.code == "APPROVAL_REFUSED" and parked.queue is not None:
            taken = self._pending_calls.describe_answer(found, parked.queue)
            entries = [self._recorder.note("approval.refused", "runtime", parked.caller, parked.span, taken)]
        return self.deny(parked, error, entries)
