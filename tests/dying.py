"""A process that dies at each of its steps in turn: before every write, sync, rename and removal that it makes."""

import os
from collections.abc import Callable
from typing import Any

STEPS = ("write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "fchmod", "mkdir", "dup2")


def deaths(work: Callable[[], Any], *, again: Callable[[], Any] = lambda: None, most: int = 200) -> int:
    """Do *work* in processes that die at their first step, their second, and so on, until one ends well.

    After each death *again* looks at what is left. Returns how many died.
    """
    for step in range(most):
        child = os.fork()
        if not child:
            _die_at(step)
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


def _die_at(step: int) -> None:
    left = [step]
    for name in STEPS:
        setattr(os, name, _counted(getattr(os, name), left))


def _counted(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            os._exit(9)
        left[0] -= 1
        return real(*args, **kwargs)

    return counted
