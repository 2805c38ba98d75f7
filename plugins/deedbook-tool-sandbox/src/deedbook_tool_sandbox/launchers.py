"""The launchers of a workspace: programs that are kept, each for one sandbox at a time."""

import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

from deedbook.contract import Failed, RunningProgram

Start: TypeAlias = Callable[[Sequence[str]], RunningProgram]
"""Starts a launcher by its command and returns its pipes: `Host.keep`, or what lets an executor start it."""
SIZE: Final = struct.Struct("!Q")
"""The number of bytes that follow."""
_START: Final = "import sys; sys.path.append(sys.argv.pop(1)); from deedbook_tool_sandbox.launcher import main; main()"
"""Starts the launcher as a module, so that Python need not compile it each time."""
_CHUNK: Final = 1 << 20
_MOST_IDLE: Final = 4
"""Launchers that are kept while no call needs them."""
_PATIENCE: Final = 2.0
"""Seconds for a launcher to end by itself."""


class LauncherLost(Exception):  # noqa: N818 - a state, which leads to another attempt or to a failure
    """A launcher ended before it had reported."""


class Report:
    """What a launcher reported about one run.

    *ended* is ``exit``, or which limit the program passed (``time``, ``output``, ``memory``), or ``refused``. *begun*
    is false if the sandbox could not be made. *outputs* has the requested files, ``None`` for each that is missing.
    """

    def __init__(self, raw: bytes) -> None:
        parts = []
        while raw:
            (size,) = SIZE.unpack_from(raw)
            parts.append(raw[SIZE.size : SIZE.size + size])
            raw = raw[SIZE.size + size :]
        head, self.out, self.err, *outputs = parts
        fields = dict(field.split("=", 1) for field in head.decode().split("\0"))
        self.ended, self.begun, self.status = fields["ended"], fields["begun"] == "yes", int(fields["status"])
        self.limits = {name[6:]: value for name, value in fields.items() if name.startswith("limit.")}
        self.outputs = [each[1:] if each[:1] == b"+" else None for each in outputs]


class Launcher:
    """One launcher: `deedbook_tool_sandbox.launcher` in processes of its own."""

    def __init__(self, program: RunningProgram) -> None:
        self.used = False
        self.owner = os.getpid()
        self._program = program
        self._given, self._taken = program.stdin.fileno(), program.stdout.fileno()
        os.set_blocking(self._given, False)

    def ask(self, request: bytes, until: float, limit: int) -> Report:
        """Send *request* and return the report, of at most *limit* bytes.

        Raises `LauncherLost`, and `Failed` (``TOOL_TIMEOUT``) after the time *until*.
        """
        left, found, size = memoryview(request), bytearray(), limit
        poll = select.poll()
        poll.register(self._given, select.POLLOUT)
        poll.register(self._taken, select.POLLIN)
        while len(found) < size:
            events = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
            if not events:
                raise Failed("TOOL_TIMEOUT", "the sandbox did not report in time; it was killed")
            if self._given in events:
                left = _write(self._given, left)
                if not left:
                    poll.unregister(self._given)
            if self._taken in events:
                found += self._read()
            if size == limit and len(found) >= SIZE.size:
                size = SIZE.size + SIZE.unpack_from(found)[0]
                if size > limit:
                    raise LauncherLost("its report is too large")
        try:
            report = Report(bytes(found[SIZE.size :]))
        except (ValueError, KeyError, struct.error):
            raise LauncherLost("it sent something else than a report") from None
        self.used = True
        return report

    def _read(self) -> bytes:
        """Return some of the report; raises `LauncherLost`."""
        try:
            data = os.read(self._taken, _CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            raise LauncherLost(self._program.complaint())
        return data

    def close(self, seconds: float = 0.0) -> None:
        """Let it end by itself within *seconds*, so that it removes its control groups; then kill what is left."""
        self._program.stdin.close()
        until = time.monotonic() + seconds
        with suppress(OSError):
            while select.select([self._taken], [], [], max(0.0, until - time.monotonic()))[0]:
                if not os.read(self._taken, _CHUNK):
                    break
        self._program.close()


def _write(fd: int, data: memoryview) -> memoryview:
    """Write some of *data* and return the rest; nothing is left if the launcher no longer reads."""
    try:
        return data[os.write(fd, data[:_CHUNK]) :]
    except BlockingIOError:
        return data
    except ConnectionError:
        return data[:0]


def launcher_command(arguments: Sequence[str]) -> list[str]:
    """Return the command that starts a launcher with *arguments*."""
    return [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parents[1]), *arguments]


class Launchers:
    """The launchers with the same *arguments*: as many as there are calls at the same time."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._argv = launcher_command(arguments)
        self._lock = Lock()
        self._idle: list[Launcher] = []
        self._closed = False

    def ask(self, start: Start, request: bytes, seconds: float, limit: int) -> Report:
        """Return the report about one run; *start* starts a new launcher. Raises `Failed`."""
        until = time.monotonic() + seconds
        while True:
            launcher = self._take() or Launcher(start(self._argv))
            try:
                report = launcher.ask(request, until, limit)
            except LauncherLost as lost:
                launcher.close()
                if not launcher.used:
                    raise Failed("SANDBOX_REFUSED", f"the sandbox could not be made: {lost}") from None
            except BaseException:
                launcher.close()
                raise
            else:
                self._give_back(launcher, report)
                return report

    def close(self) -> None:
        """End all launchers; those at work are ended by the kernel."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for launcher in idle:
            launcher.close(_PATIENCE)

    def _take(self) -> Launcher | None:
        """Return an idle launcher of this process, if there is one."""
        with self._lock:
            while self._idle:
                launcher = self._idle.pop()
                if launcher.owner == os.getpid():
                    return launcher
        return None

    def _give_back(self, launcher: Launcher, report: Report) -> None:
        """Keep a launcher whose program ended by itself; a launcher ends by itself after any other."""
        with self._lock:
            kept = not self._closed and report.ended == "exit" and report.begun and len(self._idle) < _MOST_IDLE
            if kept:
                self._idle.append(launcher)
        if not kept:
            launcher.close(_PATIENCE)
