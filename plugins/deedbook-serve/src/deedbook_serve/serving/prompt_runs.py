"""Runs of prompts: each has a session of its own, so that it can be suspended for a person and resumed later.

The ledger of such a session is that of `deedbook run`: the same commands show it, verify it, and go on with it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final

import attrs

from deedbook.continuation.resume import has_open_run, open_requests
from deedbook.contract import Event, Json, Object, Principal
from deedbook.format.context import ContextFold
from deedbook.format.errors import ApprovalError, DeedbookError, Err, LedgerError, Result, fault
from deedbook.format.events import is_ended
from deedbook.format.folds import fold
from deedbook.kernel import Kernel
from deedbook.sessions.prompts import Reply
from deedbook.sessions.session import Session
from deedbook_serve.archive import SessionArchive
from deedbook_serve.prompt_context import record_context
from deedbook_serve.tasks.book import Owner
from deedbook_serve.tasks.run_results import list_approvals

RESUME: Final = "RESUME_RUN goes on with it"
_ENDING: Final = "the runtime is being stopped; ask again when it is back"


@attrs.frozen
class PromptRun:
    """A run of a prompt: the id of its *session*, and the *result* so far.

    An `Ok` has ``{context, state, reply}``; the details of an `Err` have the ``approval`` that a person must give.
    """

    session: str
    result: Result[Json]


class PromptRuns:
    """The runs of prompts that the clients of *kernel*'s runtime began; safe in threads."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._archive = SessionArchive(kernel.state)
        self._running: dict[Session, str] = {}
        self._lock = Lock()
        self._stopping = False

    def run(self, client: Session, request: Object, begun: Callable[[str], object]) -> PromptRun:
        """Take the prompt of *request* (an action ``RUN``) to a reply, for the principal of the session *client*.

        *begun* is called with the id of the run's session before the prompt is submitted. Raises `DeedbookError` if the
        run cannot begin; a client that acts by itself must name a flow that is exposed to it.
        """
        flow = request.get("flow")
        if flow is None and client.caller.actor != "user":
            why = 'RUN without "flow" is for persons; a client names a flow that is exposed to it'
            raise DeedbookError(fault("TOOL_NOT_ALLOWED", why))
        session = self._kernel.session("run", principal=client.principal, mode=request.get("mode", "interactive"))
        with self._hold(session, client.id):
            begun(session.id)
            if "context" in request:
                record_context(session, request["context"])
            return self._finish(session, session.run(request["prompt"], flow))

    def resume(self, client: Session, name: str) -> PromptRun:
        """Go on with the run of the session *name*, or return the outcome of one that has ended.

        Raises `DeedbookError`: ``SESSION_NOT_FOUND``, ``SESSION_NOT_YOURS``, ``LEDGER_LOCKED`` while it runs, and as
        `Kernel.resume`. A run that still waits for a person is an `Err` with the approval.
        """
        events = self._read_own(describe_owner(client.principal), name)
        if not _is_open(events):
            return PromptRun(name, _read_outcome(name, events))
        try:
            session = self._kernel.resume(name)
        except ApprovalError as problem:
            return PromptRun(name, _needs_human(problem, events))
        with self._hold(session, client.id):
            return self._finish(session, session.go_on())

    def read(self, client: str, name: str) -> PromptRun:
        """Return what the ledger says about the run of the session *name*, for the principal of the session *client*.

        Raises `DeedbookError`, also if the run belongs to another principal.
        """
        start: Any = next(self._archive.read_events(client)).payload
        events = self._read_own((start["principal"]["id"], start["principal"]["on_behalf_of"]), name)
        if not _is_open(events):
            return PromptRun(name, _read_outcome(name, events))
        suspended = next((e.payload for e in reversed(events) if e.type == "session.suspended"), None)
        if suspended is None:
            why = f"the run of session {name} is running, or was interrupted; in that case, {RESUME}"
            return PromptRun(name, Err(fault("OUTCOME_UNKNOWN", why)))
        error = fault(str(suspended["code"]), str(suspended["reason"]))
        return PromptRun(name, Err(error, list_approvals(_open_approvals(events))))

    def suspend(self, client: str | None = None, *, reason: str) -> None:
        """Suspend the runs that the session *client* began, or all and begin no more; they can be resumed."""
        with self._lock:
            self._stopping = self._stopping or client is None
            sessions = [session for session, owner in self._running.items() if client in (None, owner)]
        for session in sessions:
            with suppress(DeedbookError):
                session.suspend(fault("CANCELLED", reason))

    # --- helpers -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _hold(self, session: Session, client: str) -> Iterator[None]:
        """Register a running session, and end it afterwards unless it is suspended."""
        with session:
            with self._lock:
                stopping = self._stopping
                self._running[session] = client
            try:
                if stopping:
                    raise DeedbookError(fault("RUNTIME_ENDING", _ENDING, retryable=True))
                yield
            finally:
                with self._lock:
                    self._running.pop(session, None)

    def _finish(self, session: Session, result: Result[Reply]) -> PromptRun:
        """End the session of a run, and return the outcome."""
        if session.suspended:
            return PromptRun(session.id, _describe_suspended(session, result, self._archive))
        state = result.error.code if isinstance(result, Err) else result.value.state
        session.end(ok=state == "COMPLETED", reason=state)
        return PromptRun(session.id, result if isinstance(result, Err) else result.value.context.outcome())

    def _read_own(self, owner: Owner, name: str) -> list[Event]:
        """Return the events of the session of a run; raises `DeedbookError` unless the run is one of *owner*."""
        try:
            events = list(self._archive.read_events(name))
            start: Mapping[str, Any] = events[0].payload
        except (FileNotFoundError, IndexError):
            raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no session {name!r}")) from None
        who = start["principal"]
        if (who["id"], who["on_behalf_of"]) != owner:
            raise DeedbookError(fault("SESSION_NOT_YOURS", f"the run of session {name} belongs to another principal"))
        if start["purpose"] != "run":
            raise LedgerError(fault("RESUME_REFUSED", f"session {name} was not begun by RUN or deedbook run"))
        return events


def describe_owner(principal: Principal) -> Owner:
    """Return who owns what *principal* begins."""
    return principal.id, principal.on_behalf_of


def _is_open(events: list[Event]) -> bool:
    """Return whether the run of the session with *events* can go on, or is going on."""
    return not is_ended(event.type for event in reversed(events)) and has_open_run(events)


def _describe_suspended(session: Session, result: Result[Reply], archive: SessionArchive) -> Err:
    error = result.error if isinstance(result, Err) else fault("CANCELLED", "the run was suspended")
    if error.code != "NEEDS_HUMAN":
        return Err(attrs.evolve(error, message=f"{error.message}; the run is suspended, and {RESUME}"))
    return Err(error, list_approvals(_open_approvals(list(archive.read_events(session.id)))))


def _needs_human(problem: ApprovalError, events: list[Event]) -> Err:
    if problem.error.code != "NEEDS_HUMAN":
        raise problem
    return Err(problem.error, list_approvals(_open_approvals(events)))


def _open_approvals(events: list[Event]) -> list[str]:
    return [str(event.payload["approval"]) for event in open_requests(events)]


def _read_outcome(session: str, events: list[Event]) -> Result[Json]:
    """Return the outcome of a run that has ended: that of its outermost context, or why there is none."""
    contexts = [each for each in fold(ContextFold(), events).values() if each.parent is None]
    if contexts:
        return contexts[-1].outcome()
    end = next((event.payload for event in reversed(events) if event.type == "session.end"), None)
    why = f"it ended: {end['reason']}" if end else "it has no prompt; RUN begins another one"
    return Err(fault("RUN_ENDED", f"the run of session {session} gave no reply; {why}"))
