"""Call a C library in a thread of its own, so that this one can be interrupted meanwhile.

Python handles a signal in the main thread, between two of its own steps. While the main thread is inside a C library,
such a step is in a callback, and C code cannot pass on the ``KeyboardInterrupt`` that is raised there: it is lost.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")
_END: Final = object()
_SLICE_S: Final = 0.2
"""Seconds after which the main thread looks for signals: one that comes just before a wait does not end it."""


class _Sender:
    """The callback. The library calls it in a thread of its own; the answer is whether the library must stop."""

    def __init__(self) -> None:
        self.pieces: SimpleQueue[Any] = SimpleQueue()
        self.stopped = False

    def __call__(self, piece: Any) -> bool:
        self.pieces.put(piece)
        return self.stopped

    def get(self) -> Any:
        """Return the next piece."""
        while True:
            with suppress(Empty):
                return self.pieces.get(timeout=_SLICE_S)


@contextmanager
def one_thread() -> Iterator[ThreadPoolExecutor]:
    """Provide a thread for one call of a library; at the end, wait for it, or until a second interrupt."""
    with ThreadPoolExecutor(1, "deedbook-local") as pool:
        pool.submit(int).result()  # start the thread: after an interrupt in its start, the pool would not wait for it
        yield pool


def get_result(ended: Future[T]) -> T:
    """Return the result of a call in the other thread, or raise its exception."""
    while not wait([ended], _SLICE_S).done:
        pass
    return ended.result()


def receive(produce: Callable[[Callable[[Any], bool]], object], take: Callable[[Any], None]) -> None:
    """Call *produce* with a callback in another thread, and in this one *take* with each piece that it passes.

    An exception of *take*, or an interrupt, stops *produce* at its next piece, and is raised when *produce* has ended.
    An exception of *produce* is also raised.
    """
    sender = _Sender()
    with one_thread() as pool:
        try:
            ended = pool.submit(produce, sender)
            ended.add_done_callback(lambda _: sender.pieces.put(_END))
            while (piece := sender.get()) is not _END:
                take(piece)
        finally:
            sender.stopped = True
        get_result(ended)
