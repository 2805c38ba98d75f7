"""Asking a hook on a thread of its own, within its limit."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from deedbook.contract.lifecycle import Unanswered

MOST: Final = 32
"""How many threads may answer for one hook at a time."""


class Threads:
    """Asks on threads of its own, so that who waits has an answer, or none, within *limit* seconds.

    A thread cannot be stopped. What a late one answers is thrown away, and while one is late nobody else is kept
    waiting: the next asks have no answer at once. The threads are daemons: a hung one keeps no process alive.
    """

    def __init__(self, ask: Callable[..., Any], limit: float) -> None:
        self._ask = ask
        self._limit = limit
        self._lock = threading.Lock()
        self._busy = 0
        self._late: set[_Asking] = set()

    def __call__(self, *subject: Any) -> Any:
        """Ask; raise what the hook raises, or `Unanswered`."""
        with self._lock:
            if self._late:
                due = time.monotonic() - min(asking.due for asking in self._late)
                raise Unanswered(f"is still busy with an answer that was due {due * 1000:.0f} ms ago")
            if self._busy >= MOST:
                raise Unanswered(f"is busy with {MOST} other questions")
            self._busy += 1
        asking = _Asking(self._ask, subject, self._limit, self._done)
        try:
            threading.Thread(target=asking.run, name="deedbook-hook", daemon=True).start()
        except RuntimeError as problem:
            self._done(asking)
            raise Unanswered(f"cannot be asked: {problem}") from None
        if not asking.over.wait(self._limit):
            with self._lock:
                if not asking.over.is_set():
                    self._late.add(asking)
            raise Unanswered(f"did not answer within its limit of {self._limit * 1000:g} ms")
        return asking.answer()

    def _done(self, asking: "_Asking") -> None:
        with self._lock:
            asking.over.set()
            self._busy -= 1
            self._late.discard(asking)


class _Asking:
    """One question on a thread: what came of it is there when it is *over*."""

    def __init__(
        self, ask: Callable[..., Any], subject: tuple[Any, ...], limit: float, done: Callable[["_Asking"], None]
    ) -> None:
        self.over = threading.Event()
        self.due = time.monotonic() + limit
        self._ask, self._subject, self._done = ask, subject, done
        self._said: Any = None
        self._raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._said = self._ask(*self._subject)
        except BaseException as problem:  # noqa: BLE001 - it is raised where it was asked; a thread has nobody above it
            self._raised = problem
        finally:
            self._done(self)

    def answer(self) -> Any:
        if isinstance(self._raised, KeyboardInterrupt):
            raise Unanswered("KeyboardInterrupt")  # raised by the hook: a person's reaches the main thread only
        if self._raised is not None:
            raise self._raised
        return self._said
