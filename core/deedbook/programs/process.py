"""One program that runs in a process of its own, and the process that starts such: the kernel's ends of both."""

import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Final

from deedbook.contract import Failed
from deedbook.format.errors import recordable

from .supervisor import LENGTH, SWEEP

BASE: Final[Mapping[str, str]] = MappingProxyType(
    {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
)
"""The environment of every program, beside what its caller gives."""
SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
"""What the forker executes."""
GRACE: Final = 15.0
"""Seconds that a supervisor has to kill its program, and the forker to kill what a supervisor left: far more than they
need, unless thousands of processes are in their way."""
LONGEST: Final = 3600.0
"""The most seconds to wait in one go: the system's waits have an end, a caller's patience may have none."""

_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What an interpreter may need to start; programs do not see it."""
_CHUNK: Final = 65536
_SAID: Final = 300
_KEPT: Final = 16384
_WORD: Final = 0.2
"""Seconds between the end of a program's output and its supervisor's word, where it closed the one by ending."""


class Program:
    """One program that was begun: the kernel's ends of its pipes, and the word of its supervisor."""

    def __init__(
        self, forker: "Forker", control: socket.socket, fds: tuple[int, int, int], name: str, limit: int
    ) -> None:
        self.forker = forker
        self.out, self.err = bytearray(), bytearray()
        self.pid: int | None = None
        self.status: int | None = None
        self.lost = False
        self._refused: int | None = None
        self._cut = False
        self._name = name
        self._limit = limit
        self._control = control
        control.settimeout(GRACE)
        self._stdin, out, err = fds
        self._outputs = {out: self.out, err: self.err}
        self._spoken = out
        self._left = memoryview(b"")
        self._more = True
        self._poll = select.poll()
        for fd in fds:
            os.set_blocking(fd, False)
        for fd in (control.fileno(), out, err):
            self._poll.register(fd, select.POLLIN)
        self._supervisor = select.poll()
        self._supervisor.register(control.fileno(), select.POLLIN)

    def ask(self, request: bytes) -> None:
        """Tell the supervisor what to start; raises `OSError`."""
        self._control.sendall(LENGTH.pack(len(request)) + request)

    def give(self, data: bytes, *, more: bool) -> bool:
        """Begin to write *data* to its standard input, and close that afterwards unless *more* may follow.

        Return whether it is open: not if the program closed it, or has ended.
        """
        self._left, self._more = memoryview(data), more
        self._write()
        return self._stdin >= 0

    def wait(self, until: float, seconds: float, done: Callable[[], bool]) -> None:
        """Wait until *done*, or the program ended, or (if it is kept) closed its output; raises `Failed`."""
        while self.status is None and not self.lost and not done() and not (self._more and self._mute()):
            left = until - time.monotonic()
            if left <= 0 or (not self._step(left) and time.monotonic() >= until):
                why = f"{shown(self._name)} did not end within {seconds:g} s; it was killed, with all that it started"
                raise Failed("TOOL_TIMEOUT", why)
        if self._more and self._mute():
            self.over(min(until, time.monotonic() + _WORD))
        if self.status is not None:
            self._drain()
        if self._refused is not None:
            raise Failed("NOT_STARTED", f"{shown(self._name)} was not started: {os.strerror(self._refused)}")
        if self._cut:
            raise self.broken("was killed when the kernel was closed")
        if self.lost:
            raise self.broken("was not watched to its end: its supervisor was killed")

    def part_with(self) -> tuple[int, int]:
        """Give its standard input and output away, as descriptors that wait; `attend` is what is left to do."""
        given, taken = self._stdin, self._spoken
        for fd in (given, taken):
            with suppress(KeyError):
                self._poll.unregister(fd)
            os.set_blocking(fd, True)
        self._outputs.pop(taken, None)
        self._stdin = -1
        return given, taken

    def attend(self) -> None:
        """Take what it says on standard error until it has ended, and keep the end of that."""
        while self.status is None and not self.lost:
            self._step(LONGEST)
            del self.err[:-_KEPT]

    def ending(self, mask: Callable[[str], str]) -> str:
        """Return how it ended, and the end of what it complained of, in words; what *mask* hides is cut by nothing."""
        if self._refused is not None:
            return f"{shown(self._name)} was not started: {os.strerror(self._refused)}"
        how = "ended" if self.lost else "runs" if self.status is None else f"ended (status {self.status})"
        said = recordable(mask(bytes(self.err).decode("utf-8", "replace")).strip()[-_SAID:])
        return f"{shown(self._name)} {how}{f'; it said: {said}' if said else ''}"

    def idle(self) -> bool:
        """Say whether a kept program waits for a question; raises `Failed` if it spoke without being asked."""
        while self._step(0):
            if self.status is not None or self.lost:
                self._drain()
                break
        if self.out:
            raise self.broken("answered more than one line")
        return self.status is None and not self.lost and not self._mute() and self._stdin >= 0

    def forget(self) -> None:
        """Forget what it has said."""
        self.out.clear()
        self.err.clear()

    def broken(self, why: str) -> Failed:
        """Return the failure of a program that did not do what it has to, with the end of what it complained of."""
        ended = "" if self.status is None else f" (status {self.status})"
        said = recordable(self.err[-_SAID:].decode("utf-8", "replace").strip())
        return Failed("WORKER_BROKEN", f"{shown(self._name)} {why}{ended}{f'; it said: {said}' if said else ''}")

    def cut(self) -> None:
        """Have the supervisor kill it."""
        self._cut = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def over(self, until: float) -> bool:
        """Wait until its supervisor says that nothing is left of it; return whether it did."""
        while self.status is None and not self.lost and (left := until - time.monotonic()) > 0:
            if self._supervisor.poll(math.ceil(left * 1000)):
                self._listen()
        return self.status is not None

    def kill(self) -> None:
        """Kill its process group, where nobody else is left to do more."""
        if self.pid is not None:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Give all descriptors back; whatever still runs is killed by its supervisor."""
        for fd in list(self._outputs):
            self._hang_up(fd)
        self._hang_up(self._stdin)
        self._control.close()

    def _mute(self) -> bool:
        return self._spoken not in self._outputs

    def _step(self, seconds: float) -> bool:
        """Wait for something to happen, and take it; return whether anything did."""
        events = self._poll.poll(math.ceil(min(seconds, LONGEST) * 1000))
        for fd, _ in events:
            if fd in self._outputs:
                self._read(fd)
            elif fd == self._stdin:
                self._write()
            else:
                self._listen()
        return bool(events)

    def _read(self, fd: int) -> bool:
        """Take some of what it wrote; return whether there may be more."""
        taken = self._outputs[fd]
        try:
            data = os.read(fd, min(_CHUNK, self._limit + 1 - len(taken)))
        except BlockingIOError:
            return False
        taken += data
        if len(taken) > self._limit:
            stream = "output" if fd == self._spoken else "standard error"
            why = f"{shown(self._name)} wrote more than {self._limit} bytes to its {stream}; it was killed"
            raise Failed("OUTPUT_TOO_LARGE", why)
        if not data:
            self._hang_up(fd)
        return bool(data)

    def _drain(self) -> None:
        for fd in list(self._outputs):
            while self._read(fd):
                pass

    def _write(self) -> None:
        """Write what its standard input takes now; what it closed needs no more."""
        try:
            while self._left and self._stdin >= 0:
                self._left = self._left[os.write(self._stdin, self._left[:_CHUNK]) :]
        except BlockingIOError:
            self._poll.register(self._stdin, select.POLLOUT)
            return
        except BrokenPipeError:
            self._more = False
        if self._stdin >= 0:
            with suppress(KeyError):
                self._poll.unregister(self._stdin)
            if not self._more:
                self._hang_up(self._stdin)

    def _listen(self) -> None:
        """Take the supervisor's word; its silence is the death of it."""
        try:
            said = self._control.recv(_CHUNK)
        except OSError:
            said = b""
        if not said:
            self.lost = self.status is None
            with suppress(KeyError):
                self._poll.unregister(self._control.fileno())
        for line in said.splitlines():
            word, number = line.split()
            if word == b"pid":
                self.pid = int(number)
            elif word == b"refused":
                self._refused = int(number)
            else:
                self.status = int(number)

    def _hang_up(self, fd: int) -> None:
        if fd < 0:
            return
        with suppress(KeyError):
            self._poll.unregister(fd)
        self._outputs.pop(fd, None)
        if fd == self._stdin:
            self._stdin = -1
        os.close(fd)


class Forker:
    """The process that forks a supervisor for each program, and this end of the socket to it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._channel, far = socket.socketpair()
        self._channel.settimeout(GRACE)
        with far:
            program = [sys.executable, "-I", "-S", str(SUPERVISOR)]
            kept = {name: value for name, value in os.environ.items() if name in _LIBRARIES}
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
                    [*program, str(self._owner), str(far.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(far.fileno(),),
                    env=kept,
                    start_new_session=True,
                )
            except BaseException:
                self._channel.close()
                raise

    def serves(self) -> bool:
        """Say whether it lives, and is this process's own."""
        return self._owner == os.getpid() and self._process.poll() is None

    def send(self, word: bytes, fds: Sequence[int]) -> None:
        """Send *word* with *fds*; raises `OSError` if it died."""
        socket.send_fds(self._channel, [word], fds)

    def sweep(self) -> bool:
        """Have it kill what no supervisor looks after; return whether it did."""
        heard, told = os.pipe()
        try:
            with suppress(OSError):
                self.send(SWEEP, [told])
        finally:
            os.close(told)
        with os.fdopen(heard, "rb", buffering=0) as answer:
            ready = select.poll()
            ready.register(answer, select.POLLIN)
            return bool(ready.poll(GRACE * 1000)) and answer.read(1) != b""

    def kill(self) -> None:
        """End it at once; supervisors that it forked go on by themselves."""
        if self._owner == os.getpid():
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the system does not let go of it: nobody else can do more
                self._process.wait(GRACE)

    def close(self) -> None:
        """End it, and with it whatever still runs."""
        self._channel.close()
        if self._owner == os.getpid():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * GRACE)
            self.kill()


def request_of(argv: Sequence[str], env: Mapping[str, str] | None) -> bytes:
    """Return what a supervisor is told of a program; raises `Failed` (``NOT_STARTED``) if there can be none such."""
    if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):
        raise Failed("NOT_STARTED", "a program is started with a list of strings, of which the first names it")
    given = {**BASE, **(env or {})}
    name = argv[0]
    if not name or ("/" in name and not name.startswith("/")):
        raise Failed("NOT_STARTED", f"{shown(name)} is neither an absolute path nor a name to be found on PATH")
    if not all(place.startswith("/") for place in given["PATH"].split(":")):
        raise Failed("NOT_STARTED", "PATH must hold absolute folders only")
    if not all(isinstance(value, str) and key and "=" not in key for key, value in given.items()):
        raise Failed("NOT_STARTED", f"the environment of {shown(name)} is not names with strings as values")
    parts = [*argv, *(f"{key}={value}" for key, value in given.items())]
    try:
        raw = [os.fsencode(part) for part in parts]
    except UnicodeEncodeError:
        raise Failed("NOT_STARTED", f"what {shown(name)} is given cannot be encoded as UTF-8") from None
    if any(b"\0" in part for part in raw):
        raise Failed("NOT_STARTED", f"what {shown(name)} is given holds a NUL byte")
    return b"\0".join([b"%d" % len(argv), *raw])


def located(name: str, path: str | None) -> str | None:
    """Return where the program *name* is to be found on *path* (``None``: that of this process), if it is there."""
    return which(name, path=path)


def is_found(name: str, path: str) -> bool:
    """Say whether this machine has the program *name*: an absolute path, or what is to be found on *path*."""
    return ("/" not in name or name.startswith("/")) and which(name, path=path) is not None


def deadline(seconds: float, name: object) -> float:
    """Return the moment, on the monotonic clock, that is *seconds* away; raises `Failed` if there is no time left."""
    if not seconds > 0:
        raise Failed("TOOL_TIMEOUT", f"{shown(str(name))} was not started: {seconds:g} s are left for it")
    return time.monotonic() + seconds


def pipe(reads: ExitStack, writes: ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe, each closed with its stack."""
    read, write = os.pipe()
    reads.callback(os.close, read)
    writes.callback(os.close, write)
    return read, write


def folder_of(place: str | Path, held: ExitStack) -> int:
    """Open a folder until *held* ends; raises `OSError`."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(os.close, fd)
    return fd


def shown(name: str) -> str:
    """Return a program's name as messages have it."""
    return repr(recordable(name, 200))
