"""Ask a hook on a thread of its own, within its time limit."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from deedbook.contract.lifecycle import NoAnswer

MOST: Final = 32
"""How many threads may answer for one hook at the same time."""


class HookThreads:
    """Asks a hook on threads of its own, so that the caller has an answer, or none, within *limit* seconds.

    A thread cannot be stopped. A late answer is discarded, and while a thread is late, further questions fail at once.
    The threads are daemons: a hung one does not keep the process alive.
    """

    def __init__(self, ask: Callable[..., Any], limit: float) -> None:
        self._ask = ask
        self._limit = limit
        self._lock = threading.Lock()
        self._busy = 0
        self._late: set[_Question] = set()

    def __call__(self, *subject: Any) -> Any:
        """Ask; raise the hook's exception, or `NoAnswer`."""
        with self._lock:
            if self._late:
                due = time.monotonic() - min(asking.due for asking in self._late)
                raise NoAnswer(f"is still busy with an answer that was due {due * 1000:.0f} ms ago")
            if self._busy >= MOST:
                raise NoAnswer(f"is busy with {MOST} other questions")
            self._busy += 1
        asking = _Question(self._ask, subject, self._limit, self._finish)
        try:
            threading.Thread(target=asking.run, name="deedbook-hook", daemon=True).start()
        except RuntimeError as problem:
            self._finish(asking)
            raise NoAnswer(f"cannot be asked: {problem}") from None
        if not asking.over.wait(self._limit):
            with self._lock:
                if not asking.over.is_set():
                    self._late.add(asking)
            raise NoAnswer(f"did not answer within its limit of {self._limit * 1000:g} ms")
        return asking.answer()

    def _finish(self, asking: "_Question") -> None:
        with self._lock:
            asking.over.set()
            self._busy -= 1
            self._late.discard(asking)


class _Question:
    """One question on a thread; its answer is available when it is *over*."""

    def __init__(
        self, ask: Callable[..., Any], subject: tuple[Any, ...], limit: float, done: Callable[["_Question"], None]
    ) -> None:
        self.over = threading.Event()
        self.due = time.monotonic() + limit
        self._ask, self._subject, self._finish = ask, subject, done
        self._said: Any = None
        self._raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._said = self._ask(*self._subject)
        except BaseException as problem:  # noqa: BLE001 - raised again in the asking thread
            self._raised = problem
        finally:
            self._finish(self)

    def answer(self) -> Any:
        if isinstance(self._raised, KeyboardInterrupt):
            raise NoAnswer("KeyboardInterrupt")  # raised by the hook; a real Ctrl-C reaches only the main thread
        if self._raised is not None:
            raise self._raised
        return self._said
