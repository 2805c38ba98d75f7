"""A parked call, heard: waiting for a person's answer, taking it over, and going on with it, or giving up.

Whatever happens here is in the session's ledger: asked, granted, refused, expired or withdrawn. Without an answer in
time the call is denied as one that needs a person, and the request stays in the queue, where it can be performed later.
"""

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final, TypeAlias

import attrs

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
from deedbook.ledger.ledger import Ledger
from deedbook.policy.bound import BoundAbility, Caller
from deedbook.policy.gates import Clock, source_place
from deedbook.policy.judge import Verdict
from deedbook.policy.requests import call_digest

from .handlers import Ticket
from .pending_calls import Grant, Parked, PendingCalls
from .queue import Pending
from .records import CallRecorder

PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25

Opened: TypeAlias = Result[Ticket] | Parked
Again: TypeAlias = Callable[[Parked, str, Grant | None], Opened]
"""Judges a parked call again, caused by the span of its grant, or without one by what first caused it."""


class ApprovalWait:
    """The door's side of parked calls; *again* judges one again. Once *closed*, nobody waits any more."""

    def __init__(
        self,
        parking: PendingCalls,
        ledger: Ledger,
        recorder: CallRecorder,
        clock: Clock,
        *,
        again: Again,
        closed: bool = False,
    ) -> None:
        self.closed = closed
        self._parking, self._ledger, self._recorder, self._clock = parking, ledger, recorder, clock
        self._again = again

    def use(self, grant: Grant, session: str, now: str) -> None:
        """Mark *grant* as used by *session*, durably; raises `ApprovalError` where somebody else used it."""
        self._parking.use(grant, session, now)

    def park(
        self, verdict: Verdict, bound: BoundAbility, caller: Caller, given: bytes, cause: str, entries: list[Entry]
    ) -> Opened:
        """Record the request in the session, and then where those look who may answer it; else the call is denied.

        A request for exactly this call that stands is not made twice: what was approved is taken over, what still
        waits is waited for.
        """
        span, now = self._ledger.span(), self._ledger.now()
        request = self._parking.request(verdict, bound, caller, given, (self._ledger.session_id, span, now))
        parked = Parked(verdict, bound, caller, given, cause, span, request)
        try:
            parked = attrs.evolve(parked, waiting=self._parking.queue(now))
        except LedgerError as problem:
            self._record(parked, entries)
            return self.deny(parked, problem.error)
        try:
            return self._parked(parked, entries, now)
        except BaseException:
            parked.close()
            raise

    def _parked(self, parked: Parked, entries: list[Entry], now: str) -> Opened:
        """Take over what stands; where nothing does, file the request."""
        assert parked.waiting
        found = self._parking.standing(parked.request, parked.waiting, now)
        if found is None:
            self._record(parked, entries)
            try:
                found = self._parking.file(parked.request, parked.waiting, now)
            except LedgerError as problem:
                parked.close()
                return self.deny(parked, problem.error)
            if found is None:
                return self._patient(parked)
            entries = [self._withdrawn(parked, f"request {found.request['approval']} asks for the same already")]
            parked = attrs.evolve(parked, span=self._ledger.span())
        parked = attrs.evolve(parked, request=found.request, shared=True)
        self._record(parked, entries)
        if found.grant is None:
            return self._patient(parked)
        try:
            return self._again(parked, self.granted(parked.caller, parked.span, found.grant), found.grant)
        finally:
            parked.close()

    def _patient(self, parked: Parked) -> Parked:
        """Return *parked*, without the queue where nobody waits for the answer."""
        if self._patience(parked) > 0:
            return parked
        parked.close()
        return attrs.evolve(parked, waiting=None)

    def _patience(self, parked: Parked) -> float:
        own = parked.caller.patience
        return self._parking.patience if own is None else own

    def _record(self, parked: Parked, entries: list[Entry]) -> None:
        asked = self._recorder.noted(
            "approval.requested", "policy", parked.caller, parked.cause, parked.request, parked.span
        )
        self._ledger.append([*entries, asked], durable=True)

    def _withdrawn(self, parked: Parked, reason: str) -> Entry:
        payload = {"approval": parked.request["approval"], "reason": reason}
        return self._recorder.noted("approval.withdrawn", "runtime", parked.caller, parked.span, payload)

    def deny(self, parked: Parked, error: DomainError, entries: list[Entry] | None = None) -> Err:
        """Record that the parked call is denied, after *entries*, and return why."""
        verdict = parked.verdict.deny(error.code, error.message, parked.verdict.by)
        denied = self._recorder.denied(verdict, parked.caller, parked.bound.id, parked.cause)
        self._ledger.append([*(entries or ()), denied])
        told = {"signals": verdict.signals, "approval": parked.request["approval"]}
        return Err(attrs.evolve(error, place=source_place(verdict.by)), told)

    def deferred(self, verdict: Verdict, bound: BoundAbility, caller: Caller, cause: str) -> Entry:
        """Return the event that a call is left to whoever has its effect, who is to ask a person."""
        by = {} if verdict.by is None else {"by": dict(verdict.by)}
        call = call_digest(bound.id, verdict.raw, caller.principal.id)
        told = {"kind": bound.kind, "name": bound.id, "reason": recordable(verdict.reason), "call": call, **by}
        return self._recorder.noted("approval.deferred", "policy", caller, cause, told)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, parked: Parked) -> Result[Ticket]:
        """Wait for the answer and go on with it; who is interrupted meanwhile withdraws the request."""
        waiting = self._waiting(parked)
        try:
            while True:
                time.sleep(next(waiting))
        except StopIteration as done:
            opened: Result[Ticket] = done.value
            return opened
        finally:
            waiting.close()

    async def await_answer(self, parked: Parked, ended: list[Result[Ticket]]) -> None:
        """Do what `wait` does without blocking the loop; what it comes to is added to *ended*, also when cancelled."""
        from asyncio import sleep

        from deedbook.format.loops import off_loop

        waiting = self._waiting(parked)

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

    def withdraw(self, parked: Parked, reason: str = "who asked does not wait any more") -> None:
        """Take the request back, here and, if it was filed here, in the queue; what cannot be recorded is not."""
        if not parked.shared:
            with suppress(DeedbookError):
                self._parking.withdraw(parked.request, reason)
        with suppress(DeedbookError):
            self._ledger.append([self._withdrawn(parked, reason)], durable=True)
            self.deny(parked, fault("CANCELLED", f"{parked.bound.id} was cancelled while it waited for a person"))

    def _waiting(self, parked: Parked) -> Generator[float, None, Result[Ticket]]:
        """Wait for the answer, yielding how many seconds to pause, and go on with it."""
        deadline = self._clock() + self._patience(parked)
        try:
            while True:
                try:
                    opened = self._settle(parked, (yield from self._answer(parked, deadline)))
                finally:
                    parked.close()
                if not isinstance(opened, Parked):
                    return opened
                parked = opened
        except LedgerError as problem:
            return Err(problem.error)

    def _answer(self, parked: Parked, deadline: float) -> Generator[float, None, Pending | None]:
        """Return what was answered, if anything was in time."""
        pause, expires = PAUSE, parked.request["expires"]
        try:
            while (found := parked.heard()) is None and self._clock() < deadline and not self.closed:
                if self._ledger.now() >= expires:
                    break
                yield pause
                pause = min(pause * 1.5, LONGEST_PAUSE)
        except BaseException:
            self.withdraw(parked)
            raise
        return found

    # --- going on -----------------------------------------------------------------------------------------------------

    def _settle(self, parked: Parked, found: Pending | None) -> Opened:
        """Take the answer over and judge the call again; without one it is denied, as it would have been at once."""
        if self.closed:
            self.withdraw(parked, "the session has ended")
            return Err(fault("SESSION_ENDED", f"session {self._ledger.session_id} has ended"))
        now = self._ledger.now()
        if found is None or parked.waiting is None:
            return self.unheard(parked, now)
        try:
            grant = self._parking.take(found, parked.waiting, now)
        except ApprovalError as problem:
            if parked.shared and found.withdrawn:  # by who filed it; whoever else asks, asks for themselves now
                self._ledger.append([self._withdrawn(parked, "who asked first does not wait any more")], durable=True)
                return self._again(parked, parked.cause, None)
            return self._refused(parked, found, problem.error)
        return self._again(parked, self.granted(parked.caller, parked.span, grant), grant)

    def granted(self, caller: Caller, cause: str, grant: Grant) -> str:
        """Record that the request was approved, durably, and return the span of that."""
        entry = self._recorder.noted("approval.granted", "runtime", caller, cause, grant.taken)
        self._ledger.append([entry], durable=True)
        return entry.span

    def unheard(self, parked: Parked, now: str) -> Err:
        """Deny a call that nobody has decided in time, or ever can."""
        identity, expires = parked.request["approval"], parked.request["expires"]
        if now < expires:
            why = f"{parked.verdict.reason}; approval {identity} waits for an answer"
            return self.deny(parked, fault("NEEDS_HUMAN", why))
        payload = {"approval": identity, "expires": expires}
        expired = self._recorder.noted("approval.expired", "runtime", parked.caller, parked.span, payload)
        why = f"request {identity} has expired; let the call be asked for again"
        return self.deny(parked, fault("APPROVAL_EXPIRED", why), [expired])

    def _refused(self, parked: Parked, found: Pending, error: DomainError) -> Err:
        """Deny a call whose approval was refused, has expired, or is none."""
        if error.code == "APPROVAL_EXPIRED":
            return self.unheard(parked, parked.request["expires"])
        entries = []
        if error.code == "APPROVAL_REFUSED" and parked.waiting is not None:
            taken = self._parking.taken(found, parked.waiting)
            entries = [self._recorder.noted("approval.refused", "runtime", parked.caller, parked.span, taken)]
        return self.deny(parked, error, entries)
