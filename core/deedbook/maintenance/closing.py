"""End sessions from outside: one by its name, or all whose processes died."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import attrs

from deedbook.call.pending_calls import withdraw
from deedbook.call.queue import ApprovalQueue
from deedbook.call.run_requests import RUN_OVER, RunRequests
from deedbook.continuation.resume import has_open_run
from deedbook.contract import Event
from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.events import SESSION_ID, Entry, label
from deedbook.format.files import Folder
from deedbook.format.heads import Head, list_heads
from deedbook.format.reader import SessionSummary, has_events, list_sessions, read, summarise
from deedbook.format.sealed import Sealer
from deedbook.ledger.journal import TornTail
from deedbook.ledger.ledger import LOCK_SECONDS, Ledger, WorkspaceLedger
from deedbook.ledger.recovery import close_interrupted, discard, refuse_cut, refuse_handed_over

from . import imports
from .finishing import finish_all
from .liveness import removal_lock, sweep
from .processes import Process, SessionRecord, read_processes


@attrs.frozen
class RecoveryResult:
    """The result of a recovery.

    *closed*: the sessions it ended, each with the number of calls that became unknown; *removed*: unstarted sessions
    that were removed; *refused*: sessions it left unchanged, each with the reason; *died*: dead processes that no
    earlier recovery had found; *resumable*: sessions whose run waits to be resumed, which it left as they are.
    """

    closed: Mapping[str, int] = attrs.field(factory=dict)
    removed: Sequence["RemovedSession"] = ()
    refused: Mapping[str, DomainError] = attrs.field(factory=dict)
    died: Sequence[str] = ()
    resumable: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether anything was done, or could not be done."""
        return bool(self.closed or self.removed or self.refused or self.died)

    def as_json(self) -> dict[str, Any]:
        """Return the result as ``system.boot`` records it."""
        return {
            "closed": [{"session_id": name, "unknown": unknown} for name, unknown in self.closed.items()],
            "removed": [each.id for each in self.removed],
            "refused": [
                {"session_id": name, "code": why.code, "reason": why.message} for name, why in self.refused.items()
            ],
            "died": list(self.died),
        }

    def lines(self) -> Iterator[str]:
        """Yield the result for people, one line for each process and session."""
        for name in self.died:
            yield f"process {name} died"
        for name, unknown in self.closed.items():
            yield f"session {name} is closed; {describe_unknown(unknown)}"
        yield from map(str, self.removed)
        for name, why in self.refused.items():
            yield f"session {name} is left unchanged: {why}"
        for name in self.resumable:
            yield f"session {name} can be resumed: deedbook resume {name}"


@attrs.frozen
class RemovedSession:
    """A removed session that never began; *torn* is its incomplete first write, which is kept."""

    id: str
    torn: TornTail | None = None

    def __str__(self) -> str:
        if self.torn is None:
            return f"session {self.id} never began; its folder is removed"
        left = f"{self.torn.bytes} bytes of its first event are kept in workspace/{self.torn.kept}"
        return f"session {self.id} never began; {left}, and its folder is removed"


Keep: TypeAlias = Callable[[str, bytes], TornTail]
"""Keeps the incomplete first write of a session, and records that."""


def describe_unknown(unknown: int) -> str:
    """Return the number of calls that became unknown, as text."""
    if not unknown:
        return "no call was open"
    return f"{unknown} open {'call is' if unknown == 1 else 'calls are'} unknown"


class ClosedSession(NamedTuple):
    """A session that was ended: the number of *unknown* calls, its *ledger*, closed, and the *withdrawn* requests."""

    unknown: int
    ledger: Ledger
    withdrawn: Sequence[Event] = ()


def close(state: Folder, identity: str, sealer: Sealer, heads: Sequence[Head] | None = None) -> ClosedSession:
    """End the session *identity* whose process died; a run that could be resumed is given up.

    The caller must record its new head, and withdraw the requests of `ClosedSession.withdrawn` in the workspace ledger
    (`withdraw_requests`). *heads* are the recorded ones, if they are known. Raises `LedgerError`: ``LEDGER_LOCKED``,
    ``SESSION_ENDED``, ``SESSION_NOT_FOUND``, ``SESSION_HANDED_OVER``, ``LEDGER_UNSOUND``.
    """
    folder = folder_of(state, identity)
    refuse_cut(Path(state.path), identity, heads)
    ledger = Ledger.reopen(folder, sealer=sealer)
    try:
        events = list(read(Path(state.path, "sessions", identity)))
        refuse_handed_over(Path(state.path), identity, events)
        withdrawn = [asked for asked in RunRequests(events).unfinished() if not _is_used(state, asked)]
        unknown = close_interrupted(ledger, events, withdrawn, given_up=has_open_run(events))
        return ClosedSession(unknown, ledger, withdrawn)
    finally:
        ledger.close()


def withdraw_requests(ledger: WorkspaceLedger, closed: ClosedSession) -> None:
    """Withdraw the requests of a session that was ended from outside, in the workspace's *ledger*."""
    withdraw(ledger, [str(asked.payload["approval"]) for asked in closed.withdrawn], RUN_OVER)


def _is_used(state: Folder, asked: Event) -> bool:
    """Return whether another process has used the approval of a request."""
    with suppress(DeedbookError, OSError), ApprovalQueue.of(Path(state.path)) as queue:
        found = queue.get(str(asked.payload["approval"]))
        return found is not None and found.used is not None
    return False


def set_torn_aside(
    state: Folder, identity: str, sealer: Sealer, heads: Sequence[Head] | None = None
) -> tuple[int, Ledger] | None:
    """Set aside the bytes after the last line of an ended session; return their number, and its ledger, closed.

    Returns ``None`` if it has no end, or no such bytes. The caller must record its new head. Raises as `close` does.
    """
    found = summarise(state, identity) if SESSION_ID.fullmatch(identity) else SessionSummary(identity, "empty")
    if found.state != "ended" or not found.torn:
        return None
    refuse_cut(Path(state.path), identity, heads)
    ledger = Ledger.reopen(folder_of(state, identity), sealer=sealer)
    ledger.close()
    return found.torn, ledger


def remove(
    state: Folder, identity: str, keep: Keep, heads: Sequence[Head] | None = None, seconds: float = LOCK_SECONDS
) -> "RemovedSession | None":
    """Remove the folder of a session that never began; return ``None``, without a change, if it has begun.

    *keep* (`WorkspaceLedger.keep`) receives its incomplete first write. *seconds* is how long to wait for the lock;
    meanwhile no session begins. Raises `LedgerError`: ``LEDGER_LOCKED`` while another process begins it,
    ``LEDGER_UNSOUND`` if events of it are recorded or more is in the folder, ``SESSION_NOT_FOUND``.
    """
    kept: list[TornTail] = []
    with folder_of(state, identity) as folder:
        if has_events(folder):
            return None
        refuse_cut(Path(state.path), identity, heads)
        with removal_lock(state):
            if has_events(folder):
                return None
            discard(folder, lambda torn: kept.append(keep(identity, torn)), seconds)
    return RemovedSession(identity, kept[0] if kept else None)


def write_head(ledger: WorkspaceLedger, session: str, events: int, head: str, state: str) -> None:
    """Record the number of events of a session and the hash of its last in the workspace's *ledger*.

    Then neither the session nor its end can vanish unnoticed. Raises `LedgerError`.
    """
    payload = {"session_id": session, "events": events, "head": head, "state": state}
    entry = Entry(label("ledger.session", "runtime", None), ledger.span(), ledger.root, encode(payload))
    ledger.append([entry], durable=True)


def recover(state: Folder, ledger: WorkspaceLedger, sealer: Sealer) -> RecoveryResult:
    """End every session of a *state* folder that has no end and no writer, and record its head in *ledger*.

    A session whose lock is held is skipped, and so is one that another process ends at the same time. A session that is
    damaged, or lacks recorded lines, is left unchanged. May be killed at any moment and started again.
    """
    before, listed = read_processes(state), {each.id: each for each in list_sessions(state)}
    heads = _heads(Path(state.path))  # after the listing: a dead session gets no more heads
    run = _Recovery(state, ledger, sealer, heads)
    for each in listed.values():
        run.end(each)
    for told_ in before.sessions.values():
        run.mend(told_, listed.get(told_.id), before.processes.get(told_.process))
    sweep(state)
    finish_all(state)
    imports.settle(state)
    known = {name for process in before.processes.values() for name in process.recovered.get("died", ())}
    died = [each.id for each in before.processes.values() if each.state == "died" and each.id not in known]
    return RecoveryResult(run.closed, run.removed, run.refused, died, run.resumable)


@attrs.frozen
class _Recovery:
    """One recovery: the recorded heads of each session, and the results so far."""

    state: Folder
    ledger: WorkspaceLedger
    sealer: Sealer
    heads: Mapping[str, Sequence[Head]]
    closed: dict[str, int] = attrs.field(factory=dict)
    removed: list[RemovedSession] = attrs.field(factory=list)
    refused: dict[str, DomainError] = attrs.field(factory=dict)
    resumable: list[str] = attrs.field(factory=list)

    def end(self, found: SessionSummary) -> None:
        """End or remove a session without a writer."""
        heads = self.heads.get(found.id, ())
        try:
            if _is_unbegun(found):
                if removed := remove(self.state, found.id, self.ledger.keep, heads, 0.0):
                    self.removed.append(removed)
            elif found.state == "suspended" or (found.state == "interrupted" and self._may_resume(found)):
                self.resumable.append(found.id)
            elif found.state in ("interrupted", "damaged"):
                closed = close(self.state, found.id, self.sealer, heads)
                self.closed[found.id] = closed.unknown
                withdraw_requests(self.ledger, closed)
                write_head(self.ledger, found.id, closed.ledger.size, closed.ledger.head, "interrupted")
            elif found.state == "ended" and found.torn:
                self._set_aside(found, heads)
        except DeedbookError as problem:
            if not self._is_elsewhere(found, problem.error):
                self.refused[found.id] = problem.error

    def _may_resume(self, found: SessionSummary) -> bool:
        """Return whether the session has an open run, which is left for a resumption."""
        return has_open_run(list(read(Path(self.state.path, "sessions", found.id))))

    def _set_aside(self, found: SessionSummary, heads: Sequence[Head]) -> None:
        if mended := set_torn_aside(self.state, found.id, self.sealer, heads):
            _, ledger = mended
            write_head(self.ledger, found.id, ledger.size, ledger.head, "ended")

    def mend(self, recorded: SessionRecord, found: SessionSummary | None, process: Process | None) -> None:
        """Record the head of an ended session whose process died before it recorded it, and report a lost one."""
        if recorded.state != "open":
            return
        if found is None and not self.state.exists(f"sessions/{recorded.id}"):
            why = f"its file is gone, and the workspace ledger recorded {recorded.events} events of it"
            self.refused[recorded.id] = fault("LEDGER_UNSOUND", why, place=f"{self.state.path}/sessions/{recorded.id}")
        elif found and found.state == "ended" and process and process.state == "died":
            write_head(self.ledger, found.id, found.events, found.head, "ended")

    def _is_elsewhere(self, found: SessionSummary, problem: DomainError) -> bool:
        """Return whether another process has the session now, or has ended or removed it."""
        if problem.code in ("LEDGER_LOCKED", "SESSION_ENDED"):
            return True
        try:
            with folder_of(self.state, found.id) as folder:
                return _is_unbegun(found) and has_events(folder)
        except LedgerError:
            return True


def _is_unbegun(found: SessionSummary) -> bool:
    """Return whether a session without a writer has no event; a damaged one may have some."""
    return not found.events and found.state in ("empty", "interrupted")


def _heads(place: Path) -> dict[str, list[Head]]:
    heads: dict[str, list[Head]] = {}
    for head in list_heads(place):
        heads.setdefault(head.session, []).append(head)
    return heads


def folder_of(state: Folder, session: str) -> Folder:
    """Return the folder of a session; raises `LedgerError` (``SESSION_NOT_FOUND``)."""
    if SESSION_ID.fullmatch(session):
        with suppress(FileNotFoundError):
            return state.sub(f"sessions/{session}")
    raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no session {session!r}"))
