"""The supervisor between the kernel and its programs: a program of its own, ``python -I -S supervisor.py``.

It imports nothing but the standard library, has one thread and an empty environment. One *forker* serves a `Workers`;
for each program it forks a *supervisor*, which starts the program in a session of its own, waits until that ends, is to
end, or the kernel is gone, kills everything the program left behind, and only then says how it ended. Descriptors come
by SCM_RIGHTS; a program's output never passes through here.

On Linux a supervisor adopts orphans of its program's descendants (``PR_SET_CHILD_SUBREAPER``), so that no process
escapes by forking twice or by ``setsid``. Where Landlock can scope signals (Linux 6.12), a program can neither signal
nor inspect a process that it did not start itself. Where it cannot, a program that kills its supervisor leaves orphans
to the forker, which kills them; one that kills both first gets away. On macOS there is neither: the program's process
group is killed, and what left it lives on.
"""

import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

START: Final = b"+"
"""Request to the forker, with descriptors: the control socket, standard input, output, error, and perhaps a folder."""
SWEEP: Final = b"?"
"""Request to the forker, with one descriptor: kill processes without a supervisor, then write a byte to it."""
LENGTH: Final = struct.Struct("!I")
"""The number of bytes that follow: the argument count, the arguments and ``NAME=VALUE``, separated by NUL."""

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38  # each is PR_SET_…
_CREATE_RULESET, _RESTRICT_SELF, _VERSION = 444, 446, 1  # Landlock's; the same on every machine but Alpha
_LANDLOCK_SCOPES: Final = 6
_SCOPE_SIGNAL: Final = struct.Struct("@QQQ").pack(0, 0, 2)
_DEAF: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that these processes ignore: the kernel decides when they end, and they notice its death."""
_CHANGED: Final = (*_DEAF, signal.SIGCHLD)
"""Signals that are reset to their defaults for a program."""
_DESCRIPTORS: Final = 4096
"""More descriptors than this process ever has open."""
_PATIENCE: Final = 10.0
"""Seconds for supervisors to end by themselves when the forker ends."""


class System:
    """Functions of the C library for prctl and Landlock; every method returns whether it succeeded."""

    def __init__(self) -> None:
        self._libc: Any = None
        if sys.platform == "linux":
            with suppress(ImportError, OSError):
                import ctypes

                self._libc = ctypes.CDLL(None, use_errno=True)
                self._libc.syscall.restype = ctypes.c_long
                self._word = ctypes.c_ulong

    def become_subreaper(self) -> bool:
        """Become the parent of orphaned descendants."""
        return self._prctl(_CHILD_SUBREAPER, 1)

    def make_undumpable(self) -> bool:
        """Keep processes of the same user from reading this one's memory and environment; not inherited by exec."""
        return self._prctl(_DUMPABLE, 0)

    def die_with_parent(self) -> bool:
        """Die when the parent does."""
        return self._prctl(_PDEATHSIG, signal.SIGKILL)

    def set_no_new_privileges(self) -> bool:
        """Gain no rights from set-user-id programs, which might become processes that cannot be killed here."""
        return self._prctl(_NO_NEW_PRIVS, 1)

    def can_confine(self) -> bool:
        """Return whether `confine` is possible."""
        return self._landlock(_CREATE_RULESET, None, 0, _VERSION) >= _LANDLOCK_SCOPES

    def confine(self) -> bool:
        """Allow this process to signal and inspect only processes that it will start."""
        if not self.can_confine():
            return False
        rules = self._landlock(_CREATE_RULESET, _SCOPE_SIGNAL, len(_SCOPE_SIGNAL), 0)
        return rules >= 0 and self._landlock(_RESTRICT_SELF, rules, 0) == 0

    def _prctl(self, option: int, value: int) -> bool:
        """Call prctl, whose arguments are all as long as a pointer."""
        if self._libc is None:
            return False
        return bool(self._libc.prctl(*map(self._word, (option, value, 0, 0, 0))) == 0)

    def _landlock(self, number: int, *arguments: int | bytes | None) -> int:
        """Call Landlock, for which the C library has no functions."""
        if self._libc is None:
            return -1
        given = (self._word(each) if isinstance(each, int) else each for each in (number, *arguments))
        return int(self._libc.syscall(*given))


class Watch:
    """Waits for changes of children, for data on *channel*, and for the end of the process *owner*."""

    def __init__(self, channel: socket.socket, owner: int | None) -> None:
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._poll = select.poll()
        for each in (self._woken, channel.fileno(), *([] if owner is None else [owner])):
            self._poll.register(each, select.POLLIN)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait; return whether the channel or the owner was the reason."""
        found = [fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)]
        if self._woken in found:
            with suppress(BlockingIOError):
                while os.read(self._woken, 4096):
                    pass
        return any(fd != self._woken for fd in found)

    def close(self) -> None:
        """Stop waiting and close the descriptors."""
        signal.set_wakeup_fd(-1)
        os.close(self._woken)
        os.close(self._waker)


class Forker:
    """Forks a supervisor for each program, as long as the kernel's process *owner* keeps the channel open."""

    def __init__(self, channel: socket.socket, owner: int, system: System) -> None:
        self._channel = channel
        self._owner = _open_pidfd(owner)
        self._system = system
        self._supervisors: dict[int, int] = {}  # each with its control socket: the kernel reads its end after a sweep
        self._watch = Watch(channel, self._owner)

    def serve(self) -> None:
        """Serve until the kernel is gone; then kill everything that is left."""
        while True:
            asked = self._watch.wait()
            self._reap()
            if asked and not self._answer():
                break
        self._channel.close()
        until = time.monotonic() + _PATIENCE
        while self._supervisors and time.monotonic() < until:
            time.sleep(0.005)
            self._reap()
        self._supervisors.clear()
        self._sweep()

    def _answer(self) -> bool:
        if self._owner is not None and select.select([self._owner], [], [], 0)[0]:
            return False
        try:
            asked, fds, _, _ = socket.recv_fds(self._channel, 1, 5)
        except OSError:
            return False
        if asked == START:
            self._start(fds)
        elif asked == SWEEP:
            self._reap()
            self._sweep()
            with suppress(OSError):
                os.write(fds[0], b".")
        for fd in fds:
            os.close(fd)
        return bool(asked)

    def _start(self, fds: Sequence[int]) -> None:
        try:
            supervisor = os.fork()
        except OSError as problem:
            _say(socket.socket(fileno=os.dup(fds[0])), b"refused", problem.errno or 0)
            return
        if supervisor:
            self._supervisors[supervisor] = os.dup(fds[0])
            return
        with _ending():
            for control in self._supervisors.values():
                os.close(control)
            self._watch.close()
            self._channel.close()
            Supervisor(socket.socket(fileno=fds[0]), fds[1:], self._owner, self._system).run()

    def _reap(self) -> None:
        """Record ended supervisors; a stopped one is killed. The kernel learns of a killed one after its orphans."""
        ended, lost = [], False
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
                child, status = found
                if os.WIFSTOPPED(status):
                    if child in self._supervisors:
                        os.kill(child, signal.SIGKILL)
                elif child in self._supervisors:
                    ended.append(self._supervisors.pop(child))
                    lost = lost or status != 0
        if lost:
            self._sweep()
        for control in ended:
            os.close(control)

    def _sweep(self) -> None:
        """Kill the orphans of supervisors that were killed."""
        for pause in _pauses():
            strays = descendants(spared=set(self._supervisors))
            if not strays:
                return
            kill(strays)
            time.sleep(pause)
            for stray in strays:
                with suppress(ChildProcessError):
                    os.waitpid(stray, os.WNOHANG)


class Supervisor:
    """Supervises one program: *fds* are its standard input, output and error, and perhaps its working directory."""

    def __init__(self, control: socket.socket, fds: Sequence[int], owner: int | None, system: System) -> None:
        self._control = control
        self._fds = fds
        self._owner = owner
        self._system = system
        self._status: int | None = None

    def run(self) -> None:
        """Start the requested program, and report its status when none of its processes is left."""
        (size,) = LENGTH.unpack(_receive(self._control, LENGTH.size))
        request = _receive(self._control, size)
        watch = Watch(self._control, self._owner)
        adopts = self._system.become_subreaper()
        if watch.wait(0):
            return  # the caller has gone in the meantime
        try:
            leader = os.fork()
        except OSError as problem:
            _say(self._control, b"refused", problem.errno or 0)
            return
        if not leader:
            with _ending():
                _exec_program(request, self._control, self._fds, self._system)
        for fd in self._fds:
            os.close(fd)
        _say(self._control, b"pid", leader)
        while self._status is None and not watch.wait():
            self._reap(leader)
        self._end(leader, adopts=adopts)
        _say(self._control, b"ended", os.waitstatus_to_exitcode(self._status or 0))

    def _reap(self, leader: int) -> bool:
        """Record ended processes; return whether any is left."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == leader:
                    self._status = found[1]
        except ChildProcessError:
            return False
        return True

    def _end(self, leader: int, *, adopts: bool) -> None:
        """Kill until no process is left."""
        if not adopts:
            with suppress(OSError):
                os.killpg(leader, signal.SIGKILL)
        for pause in _pauses():
            if not self._reap(leader):
                return
            kill(descendants() if adopts else {leader: leader})
            time.sleep(pause)


def descendants(spared: frozenset[int] | set[int] = frozenset()) -> dict[int, int]:
    """Return the processes below this one and their groups, without those at and below *spared*."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        below.setdefault(parent, []).append((pid, group))
    found: dict[int, int] = {}
    left = [os.getpid()]
    while left:
        deeper = [each for each in below.get(left.pop(), ()) if each[0] not in spared and each[0] not in found]
        found.update(deeper)
        left += [pid for pid, _ in deeper]
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield the id, parent and group of every process in /proc."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with suppress(OSError), open(f"{entry.path}/stat", "rb") as file:  # noqa: PTH123 - pathlib imports much
                    _, parent, group, *_ = file.read().rpartition(b")")[2].split()
                    yield int(entry.name), int(parent), int(group)


def kill(processes: dict[int, int]) -> None:
    """Kill *processes* and their groups: a group dies at once, however fast its members fork."""
    own = os.getpgrp()
    for group in set(processes.values()) - {own}:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for pid in processes:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _pauses() -> Iterator[float]:
    """Yield growing pauses, in seconds, without end."""
    pause = 0.0002
    while True:
        yield pause
        pause = min(pause * 2, 0.05)


@contextmanager
def _ending() -> Iterator[None]:
    """End this process after the block, even on an exception: it is a fork that must not continue as its parent."""
    code = 1
    try:
        yield
        code = 0
    finally:
        os._exit(code)


def _exec_program(request: bytes, control: socket.socket, fds: Sequence[int], system: System) -> NoReturn:
    """Execute the program in this process; report a failure on *control*."""
    count, *parts = request.split(b"\0")
    argv = parts[: int(count)]
    env = dict(part.split(b"=", 1) for part in parts[int(count) :])
    try:
        os.setsid()
        for target, fd in enumerate(fds[:3]):
            os.dup2(fd, target)
        if fds[3:]:
            os.fchdir(fds[3])
        parent = os.getppid()
        system.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        system.set_no_new_privileges()
        system.confine()
        for number in _CHANGED:
            signal.signal(number, signal.SIG_DFL)
        control.set_inheritable(False)
        os.closerange(3, control.fileno())
        os.closerange(control.fileno() + 1, _DESCRIPTORS)
        os.execvpe(argv[0], argv, env)  # noqa: S606 - starting programs is its purpose, and there is no shell
    except OSError as problem:
        _say(control, b"refused", problem.errno or 0)
    os._exit(127)


def _say(control: socket.socket, word: bytes, number: int) -> None:
    with suppress(OSError):
        control.sendall(b"%b %d\n" % (word, number))


def _receive(control: socket.socket, size: int) -> bytes:
    """Return the next *size* bytes; end this process if the kernel died."""
    found = bytearray()
    while len(found) < size:
        more = control.recv(min(size - len(found), 65536))
        if not more:
            os._exit(0)
        found += more
    return bytes(found)


def _open_pidfd(owner: int) -> int | None:
    """Return a descriptor that becomes readable when the process *owner* ends, where the system supports it."""
    try:
        found = os.pidfd_open(owner)
    except (AttributeError, OSError):
        found = None
    if os.getppid() != owner:
        os._exit(0)
    return found


def main() -> None:
    """Serve the kernel whose process id and socket are the arguments."""
    owner, channel = int(sys.argv[1]), int(sys.argv[2])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in _DEAF else signal.SIG_DFL)
    limit = min(1, resource.getrlimit(resource.RLIMIT_CORE)[1] % 2**63)
    resource.setrlimit(
        resource.RLIMIT_CORE, (limit, limit)
    )  # 1 instead of 0: with a piped core dump only 1 disables it
    os.chdir("/")
    system = System()
    system.become_subreaper()
    system.make_undumpable()
    gc.freeze()
    Forker(socket.socket(fileno=channel), owner, system).serve()


if __name__ == "__main__":
    main()
