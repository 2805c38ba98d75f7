"""Sees what a handler does to files and programs by itself, and not through its host.

Python's audit hooks tell of files, links, programs and native libraries that Python code opens. They do not tell what
native code does, and code can get around them. So this finds mistakes in a declaration, and no hostile plugin.
"""

import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isawaitable
from types import FrameType
from typing import Any, Final

_EVENTS: Final = frozenset(
    {
        "open", "os.chdir", "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.link", "os.listdir",
        "os.mkdir", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.spawn", "os.startfile",
        "os.symlink", "os.system", "os.truncate", "os.utime", "pty.spawn", "sqlite3.connect", "subprocess.Popen",
        "ctypes.dlopen",
    }
)  # fmt: skip
_KERNEL: Final = "deedbook"
_IMPORTING: Final = ("importlib._bootstrap", "importlib._bootstrap_external")
_TASK: Final = ("asyncio.events", "_run")
_CALLED: Final[ContextVar[bool]] = ContextVar("deedbook_testing_file_audit", default=False)


class FileAudit:
    """Records what watched handlers do by themselves; one for all tests, since Python keeps every audit hook."""

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        self._old_threads: frozenset[int | None] = frozenset()
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Watch the handlers that `watch` returned; give what they do by themselves."""
        found: list[str] = []
        self._seen = found
        self._old_threads = frozenset(thread.ident for thread in threading.enumerate())
        try:
            yield found
        finally:
            self._seen = None

    def watch(self, plugin: type[Any]) -> type[Any]:
        """Return a handler that is *plugin*, and is watched during its calls."""

        class Watched(plugin):  # type: ignore[misc]
            def __call__(self, args: Any, ctx: Any) -> Any:
                token = _CALLED.set(True)
                try:
                    result = super().__call__(args, ctx)
                finally:
                    _CALLED.reset(token)
                return _await(result) if isawaitable(result) else result

        return Watched

    def _hear(self, event: str, args: Any) -> None:
        if self._seen is None or event not in _EVENTS:
            return
        is_watched = _CALLED.get() or threading.get_ident() not in self._old_threads
        if is_watched and _is_own(sys._getframe(1)):  # noqa: SLF001 - the code that did it
            self._seen.append(f"{event}{args[:1]!r}")


async def _await(result: Awaitable[Any]) -> Any:
    token = _CALLED.set(True)
    try:
        return await result
    finally:
        _CALLED.reset(token)


def _is_own(frame: FrameType | None) -> bool:
    """Return whether an event is of the handler itself: neither of the kernel that it called, nor of an import."""
    nearest = ""  # the package of the code that did it, through the standard library
    while frame is not None and frame.f_globals.get("__name__") != __name__:
        name = str(frame.f_globals.get("__name__", ""))
        if name in _IMPORTING:
            return False
        if (name, frame.f_code.co_name) == _TASK:
            break
        if not nearest and name.partition(".")[0] not in sys.stdlib_module_names:
            nearest = name.partition(".")[0]
        frame = frame.f_back
    return nearest != _KERNEL
