"""A process that dies at each of its steps in turn: before every write, sync, rename and removal that it makes.

It may die in the midst of a write, too: with half of it done, or with zeros in its place, as a loss of power leaves it.
"""

import os
from collections.abc import Callable
from typing import Any, NoReturn

TESTS = os.getpid()
"""The process that runs tests: it imports this module."""
STEPS = ("write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "fchmod", "mkdir", "dup2")


def die() -> NoReturn:
    """End this process as a kill would: no handler, no flush. In the process that runs tests, fail the test instead.

    A handler that plays a death is meant for a process of its own. Where it runs in the wrong process, status 9 of the
    process that runs tests would name no test.
    """
    assert os.getpid() != TESTS, "a handler that plays a death ran in the process of the tests"
    os._exit(9)


def deaths(
    work: Callable[[], Any], *, again: Callable[[], Any] = lambda: None, most: int = 200, left: str = "nothing"
) -> int:
    """Do *work* in processes that die at their first step, their second, and so on, until one ends well.

    *left* is what a death at a write leaves of it: ``nothing``, ``half`` or ``zeros``. After each death *again* looks
    at what is left. Returns how many died.
    """
    for step in range(most):
        child = os.fork()
        if not child:
            _die_at(step, left)
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return step
        assert code == 9, f"it ended with {code} at step {step}"
        again()
    raise AssertionError(f"it did not end within {most} steps")


def _die_at(step: int, left: str) -> None:
    todo, write = [step], os.write
    for name in STEPS:
        setattr(
            os, name, _counted(getattr(os, name), todo, write if name == "write" and left != "nothing" else None, left)
        )


def _counted(
    real: Callable[..., Any], todo: list[int], write: Callable[[int, bytes], int] | None, left: str
) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if not todo[0]:
            if write:
                data = bytes(args[1])
                write(args[0], data[: len(data) // 2] if left == "half" else bytes(len(data)))
            die()
        todo[0] -= 1
        return real(*args, **kwargs)

    return counted
