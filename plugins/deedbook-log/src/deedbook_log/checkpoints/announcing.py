"""Telling followers of checkpoints in the background: no call waits for them, and who ends may wait for a while."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Thread

from deedbook.format.errors import DeedbookError, DomainError, fault

from .followers import Follower
from .writer import Made


class Announcer:
    """Tells *followers* of the newest checkpoint, on a daemon thread that begins with the first.

    *failed* is called with what a follower could not do.
    """

    def __init__(self, followers: Sequence[Follower], failed: Callable[[DomainError], None]) -> None:
        self._followers, self._failed = tuple(followers), failed
        self._turn = Condition()
        self._next: Made | None = None
        self._busy = self._closed = False
        self._thread: Thread | None = None

    def __call__(self, made: Made) -> None:
        """Tell of *made* soon; returns at once."""
        if not self._followers:
            return
        with self._turn:
            if self._thread is None and not self._begun():
                return
            self._next = made
            self._turn.notify_all()

    def _begun(self) -> bool:
        """Begin the thread; say whether one could be had."""
        if not self._closed:
            thread = Thread(target=self._run, name="deedbook-announcer", daemon=True)
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread
        return self._thread is not None

    def settle(self, seconds: float) -> bool:
        """Wait until everything is told, for at most *seconds*; say whether it is."""
        with self._turn:
            return self._turn.wait_for(lambda: self._next is None and not self._busy, seconds)

    def close(self) -> None:
        """Tell no more; what is being told goes on by itself."""
        with self._turn:
            self._closed, self._next = True, None
            self._turn.notify_all()

    def _run(self) -> None:
        while (made := self._taken()) is not None:
            for follower in self._followers:
                try:
                    follower(made)
                except DeedbookError as problem:
                    self._failed(problem.error)
                except Exception as problem:  # noqa: BLE001 - whatever a follower does, checkpoints go on
                    self._failed(fault("FAILED", f"{type(problem).__name__}: {problem}"))
            with self._turn:
                self._busy = False
                self._turn.notify_all()

    def _taken(self) -> Made | None:
        with self._turn:
            self._turn.wait_for(lambda: self._closed or self._next is not None)
            made, self._next = self._next, None
            self._busy = made is not None
            return made
