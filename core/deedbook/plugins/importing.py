"""Importing foreign code within a limit, and undoing what it did to the process as far as that can be undone."""

import hashlib
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
"""This environment variable says how many seconds the import of a plugin may take."""
SECONDS: Final = 30.0
_LONGEST: Final = 86_400.0

_HASHED_WITH: Final = ((json, "dumps"), (json, "loads"), (orjson, "dumps"), (orjson, "loads"), (hashlib, "sha256"))
_ENDS: Final = ("_exit", "abort")
_ABSENT: Final = object()


class Ended(BaseException):
    """What is being imported wanted to end the process at once, or took too long."""


def seconds() -> float:
    """Return how long the import of one plugin may take."""
    try:
        told = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return SECONDS
    return told if 0 < told <= _LONGEST else SECONDS


@contextmanager
def undisturbed(module: str) -> Iterator[list[str]]:
    """Import *module* inside this; give the names of what it replaced, which is put back.

    Signal handlers, the recursion limit and warnings are as before; ``os._exit`` and ``os.abort`` raise `Ended`, and so
    does the main thread when time is up. The kernel holds references of its own to what it hashes with. Who replaces
    that for everybody else, or functions of the kernel, has to be refused anyway.
    """
    replaced: list[str] = []
    limit = sys.getrecursionlimit()
    watched = [] if module in sys.modules else list(_kernel())
    with ExitStack() as undo:
        undo.callback(_put_back, watched, replaced)
        undo.callback(_put_back_libraries, [getattr(owner, name) for owner, name in _HASHED_WITH], replaced)
        undo.callback(sys.setrecursionlimit, limit)
        undo.enter_context(_signals())
        undo.enter_context(_endless())
        undo.enter_context(warnings.catch_warnings())
        yield replaced


@contextmanager
def _signals() -> Iterator[None]:
    """Put signal handlers back, and limit the time; both can be done by the main thread only."""
    if threading.current_thread() is not threading.main_thread():  # nobody else can change a handler
        yield
        return
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    free = signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)  # else it is somebody's who embeds the kernel
    if free:
        signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, seconds())
    try:
        yield
    finally:
        if free:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _late(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(f"is not imported after {seconds():g} s ({VARIABLE} says how long it may take)")


@contextmanager
def _endless() -> Iterator[None]:
    """Let nobody end the process by the usual names; what ends it in C cannot be held back."""
    before = {name: getattr(os, name) for name in _ENDS}
    for name in _ENDS:
        setattr(os, name, _refuse)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(os, name, function)


def _refuse(*_: Any) -> NoReturn:
    raise Ended("wanted to end the process")


# --- what was replaced ------------------------------------------------------------------------------------------------


def _kernel() -> Iterator[tuple[Any, str, dict[str, Any]]]:
    """Yield the kernel's modules and their classes, each with its name and what is in it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "deedbook" or not isinstance(module, ModuleType):
            continue
        space = dict(vars(module))
        yield module, name, space
        for own in space.values():
            if isinstance(own, type) and own.__module__ == name:
                yield own, f"{name}.{own.__name__}", dict(vars(own))


def _put_back(watched: list[tuple[Any, str, dict[str, Any]]], replaced: list[str]) -> None:
    for owner, name, before in watched:
        now = vars(owner)
        for member, value in before.items():
            if now.get(member, _ABSENT) is not value and (not member.startswith("__") or callable(value)):
                setattr(owner, member, value)
                replaced.append(f"{name}.{member}")


def _put_back_libraries(before: list[Any], replaced: list[str]) -> None:
    for (owner, name), function in zip(_HASHED_WITH, before, strict=True):
        if getattr(owner, name) is not function:
            setattr(owner, name, function)
            replaced.append(f"{owner.__name__}.{name}")
