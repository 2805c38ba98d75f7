"""Waits that see signals: the system may hand a signal to another thread, or just before a wait without a limit begins.

Python runs the handler of a signal in the main thread, when that thread runs again. A wait without a limit never does.
"""

import math
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import select
    from concurrent.futures import Future  # importing it takes as long as a third of a start
    from threading import Thread

T = TypeVar("T")
SLICE_S: Final = 0.2
"""Seconds after which the main thread looks for signals."""


def get_result(future: "Future[T]") -> T:
    """Return the result of *future*, or raise its exception; wait until it is done, in slices."""
    while True:
        try:
            return future.result(SLICE_S)
        except TimeoutError:
            if future.done():  # the exception is its own, or it has just ended
                return future.result()


def join(thread: "Thread") -> None:
    """Wait until *thread* has ended, in slices."""
    while thread.is_alive():
        thread.join(SLICE_S)


def poll(ready: "select.poll", seconds: float) -> list[tuple[int, int]]:
    """Return the descriptors that are *ready* and their events, after *seconds* at most; wait in slices."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        events = ready.poll(math.ceil(max(0.0, min(left, SLICE_S)) * 1000))
        if events or left <= SLICE_S:
            return events
