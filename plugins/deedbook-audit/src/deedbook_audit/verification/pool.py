"""Work for several processes at once: tasks go out in order, and what came of them comes back in that order.

The processes are our own code and nobody else's; they end with whoever started them, however that ends.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeAlias

import attrs

Work: TypeAlias = Callable[..., Callable[[Any], Any]]
"""Called once in a process, with arguments that can be pickled; what it returns is called for each task."""

_LEAVING: Final = 5.0
"""Seconds that a process has to end when it is told to; then it is killed."""
_AHEAD: Final = 2
"""So many tasks for each process are out at once: what came of them is held until its turn."""


@attrs.define
class _Member:
    """A process of the crew, what goes to and fro, and the number of the task that it is at."""

    process: Any
    connection: Connection
    task: int | None = None


def ordered(tasks: Iterable[Any], jobs: int, work: Work, *args: Any) -> Iterator[Any]:
    """Yield what *jobs* processes make of *tasks*, in order; raises `RuntimeError` if one of them dies or fails.

    It holds the processes until it is exhausted or closed.
    """
    waiting, out, done, turn = enumerate(tasks), 0, dict[int, Any](), 0
    with _crew(jobs, work, args) as crew:
        more = True
        while more or out or done:
            for member in crew if more else ():
                if member.task is None and out + len(done) < _AHEAD * jobs:
                    number, task = next(waiting, (-1, None))
                    more = number >= 0
                    if not more:
                        break
                    member.connection.send(task)
                    member.task, out = number, out + 1
            if turn in done:
                yield done.pop(turn)
                turn += 1
                continue
            for member in _ready(crew):
                assert member.task is not None
                done[member.task] = _received(member)
                member.task, out = None, out - 1


def _ready(crew: list[_Member]) -> list[_Member]:
    busy = {member.connection: member for member in crew if member.task is not None}
    return [busy[each] for each in wait(list(busy)) if isinstance(each, Connection)] if busy else []


def _received(member: _Member) -> Any:
    try:
        return member.connection.recv()
    except (EOFError, OSError):
        raise RuntimeError("a process that helped to verify has ended before it was done") from None


@contextmanager
def _crew(jobs: int, work: Work, args: tuple[Any, ...]) -> Iterator[list[_Member]]:
    context, crew = get_context("spawn"), list[_Member]()
    try:
        for _ in range(jobs):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, work, args), daemon=True)
            process.start()
            there.close()
            crew.append(_Member(process, here))
        yield crew
    finally:
        for member in crew:
            member.connection.close()
            member.process.terminate()
        for member in crew:
            member.process.join(_LEAVING)
        for member in (each for each in crew if each.process.is_alive()):
            member.process.kill()
            member.process.join(_LEAVING)


def _serve(connection: Connection, work: Work, args: tuple[Any, ...]) -> None:
    """Do tasks until whoever gives them is gone; Ctrl-C is theirs to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may ignore it, and ends this process with it
    take = work(*args)
    while True:
        try:
            connection.send(take(connection.recv()))
        except Exception:  # noqa: BLE001 - who waits hears that this process ended, and does it itself
            return
