"""Telling followers of checkpoints in the background: no call waits for them, and who ends may wait for a while."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread

from deedbook.format.errors import DeedbookError, DomainError, fault

from .followers import Follower
from .writer import NewCheckpoint


class Announcer:
    """Tells *followers* of the newest checkpoint, on a daemon thread that begins with the first.

    *failed* is called with what a follower could not do.
    """

    def __init__(self, followers: Sequence[Follower], report: Callable[[DomainError], None]) -> None:
        self._followers, self._report = tuple(followers), report
        self._condition = Condition()
        self._next: NewCheckpoint | None = None
        self._busy = self._closed = False
        self._thread: Thread | None = None

    def __call__(self, checkpoint: NewCheckpoint) -> None:
        """Tell of *checkpoint* soon; returns at once."""
        if not self._followers:
            return
        with self._condition:
            if self._thread is None and not self._start_thread():
                return
            self._next = checkpoint
            self._condition.notify_all()

    def _start_thread(self) -> bool:
        """Begin the thread; say whether one could be had."""
        if not self._closed:
            thread = Thread(target=self._run, name="deedbook-announcer", daemon=True)
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread
        return self._thread is not None

    def wait(self, seconds: float) -> bool:
        """Wait until everything is told, for at most *seconds*; say whether it is."""
        with self._condition:
            return self._condition.wait_for(lambda: self._next is None and not self._busy, seconds)

    def close(self) -> None:
        """Tell no more; what is being told goes on by itself."""
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
                except Exception as problem:  # noqa: BLE001 - whatever a follower does, checkpoints go on
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
