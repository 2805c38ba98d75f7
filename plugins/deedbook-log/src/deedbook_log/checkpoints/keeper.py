"""Keeps the log of a workspace up to date while a process writes sessions: it writes each checkpoint that is due."""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import Final

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger, WorkspaceLedger

from .announcer import Announcer
from .coverage import cover_sessions
from .followers import list_followers
from .keys import LogKeys
from .log import WorkspaceLog
from .trees import SessionTree
from .writer import CheckpointWriter, NewCheckpoint, Why

POLL_SECONDS: Final = 0.2
"""Seconds between two looks at the sizes of open sessions."""
CLOSE_SECONDS: Final = 30.0
"""Seconds that the end of a process waits for a checkpoint that is being written."""
END_SECONDS: Final = 2.0
"""Seconds that the end of a session waits for the followers of its checkpoint."""


class CheckpointKeeper:
    """Writes the checkpoints of a process: before irreversible effects, at ends of sessions, and periodically.

    *report* is called with the failures that denied no call.
    """

    def __init__(
        self,
        state: Folder,
        ledger: WorkspaceLedger,
        settings: CheckpointSettings,
        report: Callable[[DomainError], None],
    ) -> None:
        self.settings = settings
        self._state, self._ledger, self._report = state, ledger, report
        self._keys = LogKeys.of(ledger.session_id, settings.key)
        self._announcer = Announcer(list_followers(settings, state, ledger), report)
        self._writer = CheckpointWriter(state, ledger, self._keys, WorkspaceLog.read_recent(ledger), self._announce)
        self._open: dict[str, tuple[Ledger, SessionTree]] = {}
        self._last_time = time.monotonic()
        self._stop, self._starting = Event(), Lock()
        self._thread: Thread | None = None

    def begin(self, ledger: Ledger) -> None:
        """Follow a new session, before its first event is recorded."""
        track = SessionTree(ledger.session_id)
        self._writer.follow(track)
        self._open[ledger.session_id] = ledger, track
        with self._starting:
            if self._thread is None:
                self._last_time = time.monotonic()
                thread = Thread(target=self._run, name="deedbook-checkpoints", daemon=True)
                with suppress(RuntimeError):  # no thread is available: the ends of sessions are still covered
                    thread.start()
                    self._thread = thread

    def cover(self, session: str, why: Why = "irreversible") -> NewCheckpoint:
        """Write a checkpoint that covers all of *session*, or join one that is being written.

        Raises `LedgerError` (``CHECKPOINT_FAILED``).
        """
        ledger, track = self._open[session]
        try:
            return self._writer.cover(why, track, ledger.size, partial(self._advance, ledger))
        except (DeedbookError, OSError) as problem:
            cause = _to_error(problem)
            message = f"no checkpoint could be written: {cause} [{cause.code}]"
            raise LedgerError(fault("CHECKPOINT_FAILED", message, retryable=cause.retryable)) from problem

    def end(self, ledger: Ledger) -> None:
        """Cover a session that has ended; a failure is reported, and the session has still ended."""
        try:
            if ledger.session_id in self._open:
                self.cover(ledger.session_id, "session_end")
            else:  # the session began before there was a log
                self.cover_others([ledger.session_id])
        except DeedbookError as problem:
            self._report(problem.error)
        finally:
            self.forget(ledger.session_id)
        self._announcer.wait(END_SECONDS)

    def forget(self, session: str) -> None:
        """Stop following a session that never began."""
        self._open.pop(session, None)
        self._writer.forget(session)

    def cover_others(self, sessions: Collection[str] | None) -> None:
        """Cover sessions that this process has not written from the beginning, ``None`` for all that have grown.

        Raises like `CheckpointWriter.write`.
        """
        writer = CheckpointWriter(
            self._state, self._ledger, self._keys, WorkspaceLog.read_whole(self._ledger), self._announce
        )
        for left_out in cover_sessions(self._state, writer, "session_end", sessions).left_out.values():
            self._report(left_out)

    def close(self) -> None:
        """Stop the thread; an open session is covered when it ends."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                why = f"a checkpoint is still being written after {CLOSE_SECONDS:g} s; see to the disk"
                self._report(fault("CHECKPOINT_FAILED", why))
        self._announcer.close()
        try:
            self._writer.save_newest()
        except (DeedbookError, OSError) as problem:
            self._report(_to_error(problem))

    def _announce(self, checkpoint: NewCheckpoint) -> None:
        self._last_time = time.monotonic()
        self._announcer(checkpoint)

    def _advance(self, ledger: Ledger, track: SessionTree) -> None:
        size, head, end = ledger.position
        track.advance(self._state, end, durable=ledger.is_durable(end))
        if (track.tree.size, track.head) != (size, head):
            why = "its file does not hold what this process wrote into it; verify it"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=ledger.place))

    # --- periodic checkpoints ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                if why := self._find_reason():
                    self._cover_all(why)
                self._writer.save_newest()
            except (DeedbookError, OSError) as problem:
                self._report(_to_error(problem))
                self._stop.wait(self.settings.every_seconds)

    def _find_reason(self) -> Why | None:
        grown = sum(max(ledger.size - track.covered, 0) for ledger, track in list(self._open.values()))
        if grown >= self.settings.every_events:
            return "events"
        late = time.monotonic() - self._last_time >= self.settings.every_seconds
        return "seconds" if grown and late else None

    def _cover_all(self, why: Why) -> None:
        """Cover all sessions that have grown with one checkpoint."""
        grown = [(ledger, track) for ledger, track in list(self._open.values()) if ledger.size > track.covered]
        for ledger, track in grown:
            self._writer.add(track, partial(self._advance, ledger))
        for ledger, _ in grown[:1]:
            self.cover(ledger.session_id, why)


def _to_error(problem: Exception) -> DomainError:
    return problem.error if isinstance(problem, DeedbookError) else fault("FAILED", str(problem))
