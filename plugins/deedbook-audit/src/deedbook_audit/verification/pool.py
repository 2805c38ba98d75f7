"""Worker processes: tasks go out in order, and their results come back in that order.

The processes run only our own code; they end with the process that started them.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeAlias

import attrs

from deedbook.format.waits import SLICE_S

Work: TypeAlias = Callable[..., Callable[[Any], Any]]
"""Called once in a worker with picklable arguments; returns the function that is called for each task."""

_STOP_TIMEOUT: Final = 5.0
"""Seconds that a worker has to end when it is told to; then it is killed."""
_TASKS_AHEAD: Final = 2
"""The number of tasks for each worker that are out at once: results are held until their turn."""


@attrs.define
class _Worker:
    """A worker process, its connection, and the number of its current task."""

    process: Any
    connection: Connection
    task: int | None = None


def map_ordered(tasks: Iterable[Any], jobs: int, work: Work, *args: Any) -> Iterator[Any]:
    """Yield the results of *tasks* from *jobs* processes, in order; raises `RuntimeError` if a worker dies or fails.

    The workers run until the iterator is exhausted or closed.
    """
    waiting, out, done, turn = enumerate(tasks), 0, dict[int, Any](), 0
    with _start_workers(jobs, work, args) as workers:
        more = True
        while more or out or done:
            for worker in workers if more else ():
                if worker.task is None and out + len(done) < _TASKS_AHEAD * jobs:
                    number, task = next(waiting, (-1, None))
                    more = number >= 0
                    if not more:
                        break
                    worker.connection.send(task)
                    worker.task, out = number, out + 1
            if turn in done:
                yield done.pop(turn)
                turn += 1
                continue
            for worker in _wait_ready(workers):
                assert worker.task is not None
                done[worker.task] = _receive(worker)
                worker.task, out = None, out - 1


def _wait_ready(workers: list[_Worker]) -> list[_Worker]:
    busy = {worker.connection: worker for worker in workers if worker.task is not None}
    while busy:
        if ready := wait(list(busy), SLICE_S):
            return [busy[each] for each in ready if isinstance(each, Connection)]
    return []


def _receive(worker: _Worker) -> Any:
    try:
        return worker.connection.recv()
    except (EOFError, OSError):
        raise RuntimeError("a process that helped to verify has ended before it was done") from None


@contextmanager
def _start_workers(jobs: int, work: Work, args: tuple[Any, ...]) -> Iterator[list[_Worker]]:
    context, workers = get_context("spawn"), list[_Worker]()
    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, work, args), daemon=True)
            process.start()
            there.close()
            workers.append(_Worker(process, here))
        yield workers
    finally:
        for worker in workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in workers:
            worker.process.join(_STOP_TIMEOUT)
        for worker in (each for each in workers if each.process.is_alive()):
            worker.process.kill()
            worker.process.join(_STOP_TIMEOUT)


def _serve(connection: Connection, work: Work, args: tuple[Any, ...]) -> None:
    """Perform tasks until the parent is gone; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may ignore it, and ends this process with it
    take = work(*args)
    while True:
        try:
            connection.send(take(connection.recv()))
        except Exception:  # noqa: BLE001 - the parent sees the end of this process, and does the work itself
            return
