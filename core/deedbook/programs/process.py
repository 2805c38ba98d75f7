"""One program in a process of its own, and the process that forks such programs: the kernel's ends of both."""

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
from deedbook.format import waits
from deedbook.format.errors import recordable

from .supervisor import LENGTH, SWEEP

BASE: Final[Mapping[str, str]] = MappingProxyType(
    {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
)
"""The environment of every program, in addition to the caller's."""
SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
"""The file that the forker executes."""
GRACE: Final = 15.0
"""Seconds that a supervisor has to kill its program, and the forker to kill what a supervisor left: far more than they
need, unless thousands of processes are in their way."""
LONGEST: Final = 3600.0
"""The most seconds to wait at once: waits of the system are limited, a caller's limit may be infinite."""

_LIBRARIES: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that an interpreter may need to start; programs do not get them."""
_CHUNK: Final = 65536
_SAID: Final = 300
_KEPT: Final = 16384
WORD: Final = 0.2
"""Seconds between the end of a program's output and the report of its supervisor, if its exit closed the output."""


class Program:
    """One started program: the kernel's ends of its pipes, and the reports of its supervisor."""

    def __init__(
        self, forker: "ForkerClient", control: socket.socket, fds: tuple[int, int, int], name: str, limit: int
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
        """Send the start request to the supervisor; raises `OSError`."""
        self._control.sendall(LENGTH.pack(len(request)) + request)

    def give(self, data: bytes, *, more: bool) -> bool:
        """Begin to write *data* to its standard input, and close it afterwards unless *more* may follow.

        Return whether the input is open: not if the program closed it, or has ended.
        """
        self._left, self._more = memoryview(data), more
        self._write()
        return self._stdin >= 0

    def wait(self, until: float, seconds: float, done: Callable[[], bool]) -> None:
        """Wait until *done*, the end of the program, or (if it is kept) the end of its output; raises `Failed`."""
        while self.status is None and not self.lost and not done() and not (self._more and self._mute()):
            left = until - time.monotonic()
            if left <= 0 or (not self._step(left) and time.monotonic() >= until):
                why = (
                    f"{quote_name(self._name)} did not end within {seconds:g} s; it was killed, with all its processes"
                )
                raise Failed("TOOL_TIMEOUT", why)
        if self._more and self._mute():
            self.wait_for_end(min(until, time.monotonic() + WORD))
        if self.status is not None:
            self._drain()
        if self._refused is not None:
            raise Failed("NOT_STARTED", f"{quote_name(self._name)} was not started: {os.strerror(self._refused)}")
        if self._cut:
            raise self.failure("was killed when the kernel was closed")
        if self.lost:
            raise self.failure("was not watched to its end: its supervisor was killed")

    def release_pipes(self) -> tuple[int, int]:
        """Return its standard input and output as blocking descriptors; `collect_errors` does the rest."""
        given, taken = self._stdin, self._spoken
        for fd in (given, taken):
            with suppress(KeyError):
                self._poll.unregister(fd)
            os.set_blocking(fd, True)
        self._outputs.pop(taken, None)
        self._stdin = -1
        return given, taken

    def collect_errors(self) -> None:
        """Read its standard error until it has ended, and keep the last part."""
        while self.status is None and not self.lost:
            self._step(LONGEST)
            del self.err[:-_KEPT]

    def is_ending(self) -> bool:
        """Return whether the other ends of all its outputs are closed: it has ended, or is about to."""
        poll = select.poll()
        outputs = list(self._outputs)
        for fd in outputs:
            poll.register(fd, 0)
        return len(poll.poll(0)) == len(outputs)

    def describe_end(self, mask: Callable[[str], str]) -> str:
        """Return as text how it ended, and the end of its standard error; *mask* is applied before truncation."""
        if self._refused is not None:
            return f"{quote_name(self._name)} was not started: {os.strerror(self._refused)}"
        how = "ended" if self.lost else "runs" if self.status is None else f"ended (status {self.status})"
        said = recordable(mask(bytes(self.err).decode("utf-8", "replace")).strip()[-_SAID:])
        return f"{quote_name(self._name)} {how}{f'; it said: {said}' if said else ''}"

    def idle(self) -> bool:
        """Return whether a kept program waits for a question; raises `Failed` if it wrote without a question."""
        while self._step(0):
            if self.status is not None or self.lost:
                self._drain()
                break
        if self.out:
            raise self.failure("answered more than one line")
        return self.status is None and not self.lost and not self._mute() and self._stdin >= 0

    def forget(self) -> None:
        """Discard its output."""
        self.out.clear()
        self.err.clear()

    def failure(self, why: str) -> Failed:
        """Return the failure of a program that did not do what it must, with the end of its standard error."""
        ended = "" if self.status is None else f" (status {self.status})"
        said = recordable(self.err[-_SAID:].decode("utf-8", "replace").strip())
        return Failed("WORKER_BROKEN", f"{quote_name(self._name)} {why}{ended}{f'; it said: {said}' if said else ''}")

    def request_kill(self) -> None:
        """Ask the supervisor to kill it."""
        self._cut = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def wait_for_end(self, until: float) -> bool:
        """Wait until its supervisor reports that no process is left; return whether it did."""
        while self.status is None and not self.lost and (left := until - time.monotonic()) > 0:
            if waits.poll(self._supervisor, left):
                self._listen()
        return self.status is not None

    def kill(self) -> None:
        """Kill its process group, if nothing else can end it."""
        if self.pid is not None:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close all descriptors; processes that still run are killed by the supervisor."""
        for fd in list(self._outputs):
            self._hang_up(fd)
        self._hang_up(self._stdin)
        self._control.close()

    def _mute(self) -> bool:
        return self._spoken not in self._outputs

    def _step(self, seconds: float) -> bool:
        """Wait for an event and handle it; return whether there was one."""
        events = waits.poll(self._poll, min(seconds, LONGEST))
        for fd, _ in events:
            if fd in self._outputs:
                self._read(fd)
            elif fd == self._stdin:
                self._write()
            else:
                self._listen()
        return bool(events)

    def _read(self, fd: int) -> bool:
        """Read some of its output; return whether there may be more."""
        taken = self._outputs[fd]
        try:
            data = os.read(fd, min(_CHUNK, self._limit + 1 - len(taken)))
        except BlockingIOError:
            return False
        taken += data
        if len(taken) > self._limit:
            stream = "output" if fd == self._spoken else "standard error"
            why = f"{quote_name(self._name)} wrote more than {self._limit} bytes to its {stream}; it was killed"
            raise Failed("OUTPUT_TOO_LARGE", why)
        if not data:
            self._hang_up(fd)
        return bool(data)

    def _drain(self) -> None:
        for fd in list(self._outputs):
            while self._read(fd):
                pass

    def _write(self) -> None:
        """Write what its standard input accepts now; discard the rest if it is closed."""
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
        """Read the supervisor's report; end of file means that the supervisor died."""
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


class ForkerClient:
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

    def is_alive(self) -> bool:
        """Return whether it lives and was started by this process."""
        return self._owner == os.getpid() and self._process.poll() is None

    def send(self, word: bytes, fds: Sequence[int]) -> None:
        """Send *word* with *fds*; raises `OSError` if it died."""
        socket.send_fds(self._channel, [word], fds)

    def sweep(self) -> bool:
        """Make it kill processes without a supervisor; return whether it did."""
        reader, writer = os.pipe()
        try:
            with suppress(OSError):
                self.send(SWEEP, [writer])
        finally:
            os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as answer:
            ready = select.poll()
            ready.register(answer, select.POLLIN)
            return bool(ready.poll(GRACE * 1000)) and answer.read(1) != b""

    def kill(self) -> None:
        """Kill it; supervisors that it forked continue on their own."""
        if self._owner == os.getpid():
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # it cannot be killed; nothing more can be done
                self._process.wait(GRACE)

    def close(self) -> None:
        """End it, and every program that still runs."""
        self._channel.close()
        if self._owner == os.getpid():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * GRACE)
            self.kill()


def encode_request(argv: Sequence[str], env: Mapping[str, str] | None) -> bytes:
    """Return the start request for a supervisor; raises `Failed` (``NOT_STARTED``) for an invalid program."""
    if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):
        raise Failed("NOT_STARTED", "a program is started with a list of strings, of which the first names it")
    given = {**BASE, **(env or {})}
    name = argv[0]
    if not name or ("/" in name and not name.startswith("/")):
        raise Failed("NOT_STARTED", f"{quote_name(name)} is neither an absolute path nor a name to be found on PATH")
    if not all(place.startswith("/") for place in given["PATH"].split(":")):
        raise Failed("NOT_STARTED", "PATH must hold absolute folders only")
    if not all(isinstance(value, str) and key and "=" not in key for key, value in given.items()):
        raise Failed("NOT_STARTED", f"the environment of {quote_name(name)} is not names with strings as values")
    parts = [*argv, *(f"{key}={value}" for key, value in given.items())]
    try:
        raw = [os.fsencode(part) for part in parts]
    except UnicodeEncodeError:
        raise Failed("NOT_STARTED", f"what {quote_name(name)} is given cannot be encoded as UTF-8") from None
    if any(b"\0" in part for part in raw):
        raise Failed("NOT_STARTED", f"what {quote_name(name)} is given holds a NUL byte")
    return b"\0".join([b"%d" % len(argv), *raw])


def find_program(name: str, path: str | None) -> str | None:
    """Return the path of the program *name* on *path* (``None``: that of this process), or ``None``."""
    return which(name, path=path)


def has_program(name: str, path: str) -> bool:
    """Return whether this machine has the program *name*: an absolute path, or a name on *path*."""
    return ("/" not in name or name.startswith("/")) and which(name, path=path) is not None


def deadline(seconds: float, name: object) -> float:
    """Return the time on the monotonic clock *seconds* from now; raises `Failed` if no time is left."""
    if not seconds > 0:
        raise Failed("TOOL_TIMEOUT", f"{quote_name(str(name))} was not started: {seconds:g} s are left for it")
    return time.monotonic() + seconds


def pipe(reads: ExitStack, writes: ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe, each closed with its stack."""
    read, write = os.pipe()
    reads.callback(os.close, read)
    writes.callback(os.close, write)
    return read, write


def open_folder(place: str | Path, held: ExitStack) -> int:
    """Open a folder until *held* ends; raises `OSError`."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(os.close, fd)
    return fd


def quote_name(name: str) -> str:
    """Return a program's name for messages."""
    return repr(recordable(name, 200))
