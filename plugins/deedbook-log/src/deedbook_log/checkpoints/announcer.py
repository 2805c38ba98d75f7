"""Announces checkpoints to followers in the background: no call waits for them, and a close may wait for a while."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread

from deedbook.format.errors import DeedbookError, DomainError, fault

from .followers import Follower
from .writer import NewCheckpoint


class Announcer:
    """Announces the newest checkpoint to *followers*, on a daemon thread that starts with the first one.

    *report* is called with the failures of followers.
    """

    def __init__(self, followers: Sequence[Follower], report: Callable[[DomainError], None]) -> None:
        self._followers, self._report = tuple(followers), report
        self._condition = Condition()
        self._next: NewCheckpoint | None = None
        self._busy = self._closed = False
        self._thread: Thread | None = None

    def __call__(self, checkpoint: NewCheckpoint) -> None:
        """Announce *checkpoint* soon; returns at once."""
        if not self._followers:
            return
        with self._condition:
            if self._thread is None and not self._start_thread():
                return
            self._next = checkpoint
            self._condition.notify_all()

    def _start_thread(self) -> bool:
        """Start the thread; return whether it runs."""
        if not self._closed:
            thread = Thread(target=self._run, name="deedbook-announcer", daemon=True)
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread
        return self._thread is not None

    def wait(self, seconds: float) -> bool:
        """Wait up to *seconds* until everything is announced; return whether it is."""
        with self._condition:
            return self._condition.wait_for(lambda: self._next is None and not self._busy, seconds)

    def close(self) -> None:
        """Announce nothing more; a running announcement continues."""
        with self._condition:
            self._closed, self._next = True, None
            self._condition.notify_all()

    def _run(self) -> None:
        while (checkpoint := self._take_next()) is not None:
            for follower in self._followers:
                try:
                    follower(checkpoint)
                except DeedbookError as problem:
                    self._report(problem.error)
                except Exception as problem:  # noqa: BLE001 - a follower's failure must not stop checkpoints
                    self._report(fault("FAILED", f"{type(problem).__name__}: {problem}"))
            with self._condition:
                self._busy = False
                self._condition.notify_all()

    def _take_next(self) -> NewCheckpoint | None:
        with self._condition:
            self._condition.wait_for(lambda: self._closed or self._next is not None)
            checkpoint, self._next = self._next, None
            self._busy = checkpoint is not None
            return checkpoint
