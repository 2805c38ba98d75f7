"""The files that the calls of one handler may reach while they are under way.

A handler's host asks here before it opens, lists or writes a file. The limits of the current call are in a context
variable: asynchronous handlers, and threads that run in a copy of the context, keep them. A thread that the handler
started without the context belongs to no call. The limits of all calls of the handler that are under way apply to it.
They also apply, in addition to its own, to a task or thread whose call has ended: it may serve later calls.
"""

from collections.abc import Sequence
from contextvars import ContextVar, Token
from threading import Lock
from typing import Final, Literal, Protocol, TypeAlias

Access: TypeAlias = Literal["read", "write", "list"]


class FileLimits(Protocol):
    """The limits of one call: *programs* says whether it may start programs, which the handler has to confine."""

    @property
    def programs(self) -> bool:
        """Whether the handler may start programs."""

    def refusal(self, access: Access, place: str) -> str | None:
        """Return why *place*, a normal path from the root (``""``), may not be accessed so; ``None`` if it may."""


_SCOPE: Final[ContextVar["FileScope | None"]] = ContextVar("deedbook_call_files", default=None)


class CallFiles:
    """The calls of one handler that are under way; *files* is what the handler declares to reach."""

    def __init__(self, files: str | None = None) -> None:
        self.files = files
        self._lock = Lock()
        self._under_way: list[FileLimits] = []

    def enter(self, limits: FileLimits | None) -> "FileScope":
        """Return the context manager around one call of the handler; ``None`` is a call without limits."""
        return FileScope(self, limits)

    def current(self) -> Sequence[FileLimits]:
        """Return the limits that apply to the running code."""
        scope = _SCOPE.get()
        if scope is not None and scope.active:
            return scope.limits
        with self._lock:
            return (*scope.limits, *self._under_way) if scope is not None else tuple(self._under_way)

    def begin(self, limits: FileLimits) -> None:
        """Note that a limited call begins."""
        with self._lock:
            self._under_way.append(limits)

    def end(self, limits: FileLimits) -> None:
        """Note that a limited call has ended."""
        with self._lock:
            self._under_way.remove(limits)


class FileScope:
    """The context manager around one call, whose *limits* hold as long as it is *active*."""

    __slots__ = ("_calls", "_token", "active", "limits")

    def __init__(self, calls: CallFiles, limits: FileLimits | None) -> None:
        self._calls = calls
        self.limits = () if limits is None else (limits,)
        self.active = True

    def __enter__(self) -> None:
        for limits in self.limits:
            self._calls.begin(limits)
        self._token: Token[FileScope | None] = _SCOPE.set(self)

    def __exit__(self, *_: object) -> None:
        self.active = False
        try:
            _SCOPE.reset(self._token)
        except ValueError:  # a coroutine that is closed from another context; that context never had the limits
            pass
        finally:
            for limits in self.limits:
                self._calls.end(limits)
