"""Import foreign code within a time limit, and undo its changes to the process as far as possible."""

import hashlib
import inspect
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn

import orjson

VARIABLE: Final = "DEEDBOOK_IMPORT_SECONDS"
"""The environment variable with the number of seconds that the import of a plugin may take."""
SECONDS: Final = 30.0
_LONGEST: Final = 86_400.0

_HASHED_WITH: Final = ((json, "dumps"), (json, "loads"), (orjson, "dumps"), (orjson, "loads"), (hashlib, "sha256"))
_ENDS: Final = ("_exit", "abort")
_ABSENT: Final = object()
_SIGNALS: Final = tuple(map(int, signal.valid_signals()))
_get_handler: Final = inspect.unwrap(signal.getsignal)  # without the conversion to enumerations, which takes longest


class ImportAborted(BaseException):
    """The imported code tried to end the process, or took too long."""


def import_seconds() -> float:
    """Return how many seconds the import of one plugin may take."""
    try:
        seconds = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return SECONDS
    return seconds if 0 < seconds <= _LONGEST else SECONDS


@contextmanager
def guard_import(module: str) -> Iterator[list[str]]:
    """Import *module* inside this context; yields the names of what it replaced, which is restored.

    Signal handlers, the recursion limit and warnings are restored; ``os._exit`` and ``os.abort`` raise `ImportAborted`,
    and so does the main thread when the time is over. The kernel holds its own references to its hash functions. A
    plugin that replaces them for other code, or replaces functions of the kernel, must be refused anyway.
    """
    replaced: list[str] = []
    limit = sys.getrecursionlimit()
    watched = [] if module in sys.modules else list(_kernel())
    with ExitStack() as undo:
        undo.callback(_restore, watched, replaced)
        undo.callback(_restore_libraries, [getattr(owner, name) for owner, name in _HASHED_WITH], replaced)
        undo.callback(sys.setrecursionlimit, limit)
        undo.enter_context(_signals())
        undo.enter_context(_block_exit())
        undo.enter_context(warnings.catch_warnings())
        yield replaced


@contextmanager
def _signals() -> Iterator[None]:
    """Restore signal handlers, and limit the time; only the main thread can do both."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can change a handler
        yield
        return
    before = {number: _get_handler(number) for number in _SIGNALS}
    free = signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)  # otherwise the timer belongs to an embedding program
    if free:
        signal.signal(signal.SIGALRM, _time_out)
        signal.setitimer(signal.ITIMER_REAL, import_seconds())
    try:
        yield
    finally:
        if free:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            if handler is not None and _get_handler(number) is not handler:
                signal.signal(number, handler)


def _time_out(_number: int, _frame: FrameType | None) -> NoReturn:
    raise ImportAborted(f"is not imported after {import_seconds():g} s ({VARIABLE} says how long it may take)")


@contextmanager
def _block_exit() -> Iterator[None]:
    """Replace the functions that end the process; an exit in C code cannot be prevented."""
    before = {name: getattr(os, name) for name in _ENDS}
    for name in _ENDS:
        setattr(os, name, _refuse)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(os, name, function)


def _refuse(*_: Any) -> NoReturn:
    raise ImportAborted("tried to end the process")


# --- what was replaced ------------------------------------------------------------------------------------------------


def _kernel() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    """Yield the kernel's modules and their classes, each with its name and its namespace."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "deedbook" or not isinstance(module, ModuleType):
            continue
        space = dict(vars(module))
        yield module, name, space
        for own in space.values():
            if isinstance(own, type) and own.__module__ == name:
                yield own, f"{name}.{own.__name__}", dict(vars(own))


def _restore(watched: list[tuple[Any, str, dict[str, Any]]], replaced: list[str]) -> None:
    for owner, name, before in watched:
        now = vars(owner)
        for member, value in before.items():
            if now.get(member, _ABSENT) is not value and (not member.startswith("__") or callable(value)):
                setattr(owner, member, value)
                replaced.append(f"{name}.{member}")


def _restore_libraries(before: list[Any], replaced: list[str]) -> None:
    for (owner, name), function in zip(_HASHED_WITH, before, strict=True):
        if getattr(owner, name) is not function:
            setattr(owner, name, function)
            replaced.append(f"{owner.__name__}.{name}")
