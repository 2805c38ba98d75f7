"""Makes sandboxes: one after the other, each for one program; its arguments are ``NAME=VALUE``.

The tool keeps this program running, because an interpreter takes longer to start than a sandbox. It is two processes.
The first makes the control groups and removes them in the end. The second gives up the root user, reads requests from
standard input, and writes one report for each to standard output. After a request that went wrong it ends, so that the
next one begins with a new launcher. It has no threads and imports only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

from .control_groups import ControlGroups  # noqa: E402
from .inside import FOLDERS, SIZE, STATUS, Confinement, Inside, Task, children  # noqa: E402
from .system_calls import BIND, SystemCalls, refusing_filter  # noqa: E402

NOBODY: Final = 65534
"""The user and group id of the program."""
_POLL: Final = 0.05
"""Seconds between two looks at the memory."""
_CHUNK: Final = 65536
_OWN_PROCESSES: Final = 5
"""Processes in the control group beside the program's: the launcher, two of bubblewrap, the holder, and `Inside`."""
_MARKED: Final = 2
"""Bytes of the first answer of `Inside`: a mark, and the version of Landlock."""
_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc")
"""What a program in a degraded sandbox may read in addition to its environment."""
_PASSWD: Final = f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/bin/false\n".encode()


class Refusal(Exception):  # noqa: N818 - a refusal, not a fault
    """The sandbox cannot be made; the text says why."""


class Settings:
    """The arguments: names with one value each, and ``read``, the folders that the program may read."""

    def __init__(self, arguments: Sequence[str]) -> None:
        pairs = [argument.split("=", 1) for argument in arguments]
        self.read = [value for name, value in pairs if name == "read"]
        self._values = dict(pair for pair in pairs if pair[0] != "read")

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def number(self, name: str) -> int:
        """Return a whole number."""
        return int(self._values[name])


def show(system: SystemCalls, folders: Sequence[str]) -> list[str]:
    """Return a place for each folder where every user can reach it; ``/tmp`` is hidden from this process from now on.

    Only root may reach some folders, such as an environment below ``/root``.
    """
    opened = [os.open(folder, os.O_PATH) for folder in folders]
    system.mount("none", "/tmp", "tmpfs", 0, "mode=755")  # noqa: S108 - private to the sandbox
    places = []
    for number, folder in enumerate(opened):
        place = f"/tmp/{number}"  # noqa: S108
        os.mkdir(place)  # noqa: PTH102
        system.mount(f"/proc/self/fd/{folder}", place, None, BIND)
        os.close(folder)
        places.append(place)
    return places


class Bubblewrap:
    """Starts bubblewrap, which is *program*.

    *places* are where it finds the folders to read, *refusing* is the filter of system calls for its own processes.
    """

    def __init__(self, settings: Settings, places: Sequence[str], program: str, refusing: bytes | None) -> None:
        self._program = program
        self._filter = refusing
        self._before = [
            "bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
            "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL",
        ]  # fmt: skip
        for name in ("data", "workspace", "tmp"):  # first: an environment may stand below /tmp
            self._before += _tmpfs(f"/{name}", settings.number(name))
        for folder, place in zip(settings.read, places, strict=True):
            self._before += ["--ro-bind", place, folder]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if os.path.islink(f"/{name}"):  # noqa: PTH114
                self._before += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]  # noqa: PTH115
            elif os.path.isdir(f"/{name}"):  # noqa: PTH112
                self._before += ["--ro-bind", f"/{name}", f"/{name}"]
        for path in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"):
            self._before += ["--ro-bind-try", path, path]
        self._before += ["--proc", "/proc", "--dev", "/dev"]
        self._before += [*_tmpfs("/dev/shm", 64 << 20), "--remount-ro", "/dev"]  # noqa: S108

    def start(self, hold: int, ready: int, err: int, info: int) -> int:
        """Start it and return its process id. The holder inside copies *hold* to *ready* until its input ends.

        Bubblewrap writes the process id of the first process inside to *info*. Its environment is empty, because it
        stays readable inside.
        """
        passwd = file_of(_PASSWD)
        given = [passwd] if self._filter is None else [passwd, file_of(self._filter)]
        for fd in (info, *given):
            os.set_inheritable(fd, True)
        argv = [*self._before, "--ro-bind-data", str(passwd), "/etc/passwd", "--remount-ro", "/", "--chdir", "/"]
        argv += ["--info-fd", str(info), *(["--seccomp", str(given[1])] if given[1:] else []), "--", "cat"]
        streams = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((hold, ready, err))]
        try:
            return os.posix_spawn(self._program, argv, {}, file_actions=streams)
        finally:
            for fd in given:
                os.close(fd)


def file_of(data: bytes) -> int:
    """Return a descriptor from which *data* can be read."""
    file = os.memfd_create("sandbox")
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--size", str(size), "--tmpfs", path]


class Launcher:
    """Makes sandboxes with the same settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.system = SystemCalls()
        self.limits: dict[str, str] = {}
        self.groups = ControlGroups(settings["groups"])
        self.bubblewrap: Bubblewrap | None = None
        self._affinity = False

    def prepare(self) -> None:
        """Make the limits that hold from outside; raises `Refusal` where one is missing and must not be."""
        settings, groups = self.settings, self.groups
        if settings["bwrap"]:
            self.limits |= {"network": "namespace", "root": "read-only"}
        else:
            self.limits |= {"network": "degraded: only TCP is refused", "root": "degraded: files by Landlock alone"}
        self.limits["memory"] = "cgroup" if groups.limit_memory(settings.number("memory")) else "polled"
        most = settings.number("processes") + _OWN_PROCESSES
        self.limits["processes"] = "cgroup" if groups.limit_processes(most) else "rlimit"
        count = settings.number("cpus")
        if groups.limit_processors(count):
            self.limits["cpus"] = "cgroup"
            return
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
        self._affinity = True
        enforced = refusing_filter(memory=False, affinity=True) is not None or count >= (os.cpu_count() or 1)
        self.limits["cpus"] = "affinity" if enforced else "degraded: affinity, which the program can change"
        if not enforced and settings["degraded"] == "no":
            raise Refusal("the number of processors cannot be limited here")

    def confine(self) -> Confinement:
        """Enter the control groups, stop being root, and return how programs are confined."""
        settings, system = self.settings, self.system
        self.groups.join()
        places, program = settings.read, settings["bwrap"]
        if os.getuid() == 0:
            if program and system.leave_mounts():
                home = settings["bwrap_home"]
                *places, home_place = show(system, [*settings.read, home])
                program = program.replace(home, home_place, 1) if home != "/" else program
            leave_root()
        self.limits["user"] = str(os.getuid())
        for folder, place in zip(settings.read, places, strict=True):
            if not os.access(place, os.R_OK | os.X_OK):
                raise Refusal(f"{folder} cannot be read by user {os.getuid()}; let others read it")
        polled = self.limits["memory"] == "polled"
        refusing = refusing_filter(memory=polled, affinity=self._affinity)
        if program:
            self.bubblewrap = Bubblewrap(settings, places, program, refusing)
        system.hide()
        system.adopt_orphans()
        return Confinement(
            system=system,
            readable=["/"] if program else [*settings.read, *_SYSTEM],
            processes=settings.number("processes"),
            data=2 * settings.number("memory") if polled else 0,
            refusing=refusing,
            most=settings.number("bytes"),
        )

    def serve(self, parent: int) -> None:
        """Answer requests until standard input ends, one went wrong, or the process *parent* ends."""
        confinement = self.confine()
        os.chdir("/")
        self.system.die_with_parent(parent)
        while True:
            try:
                task = Task()
            except EOFError:
                return
            task.env[b"PATH"] = os.fsencode(self.settings["programs"]) + b":" + task.env.get(b"PATH", b"/usr/bin:/bin")
            run = Run(self, confinement, task)
            run.start()
            run.watch()
            run.finish()
            write_report(run.report())
            if run.ended != "exit" or not run.begun or self.bubblewrap is None:
                return


class Run:
    """One program: its sandbox, and what it wrote."""

    def __init__(self, launcher: Launcher, confinement: Confinement, task: Task) -> None:
        self.ended = "exit"
        self.begun = False
        self._launcher = launcher
        self._settings = launcher.settings
        self._confinement = confinement
        self._task = task
        self._status: int | None = None
        self._limits = dict(launcher.limits)
        self._bubblewrap = self._inside = 0
        self._sandbox: int | None = None
        self._hold = -1
        self._folder = ""
        self._spaces: list[int] = []
        self._answer = bytearray()
        self._written: dict[int, bytearray] = {}
        self._open: set[int] = set()
        self._until = time.monotonic() + task.seconds
        self._poll = select.poll()

    def start(self) -> None:
        """Start bubblewrap and `Inside`."""
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        self._control, control = socket.socketpair()
        ready, pid = -1, None
        if self._launcher.bubblewrap:
            ready, pid = self._start_bubblewrap(self._launcher.bubblewrap, err)
        else:
            self._folder = f"/tmp/deedbook-sandbox-{os.urandom(8).hex()}"  # noqa: S108 - made here, must not exist
            for folder in ("", *FOLDERS[:3]):
                os.mkdir(self._folder + folder, 0o700)  # noqa: PTH102
        self._inside = os.fork()
        if not self._inside:
            self._be_inside(pid, ready, control, out, err)
        control.close()
        for fd in (out, err, *([] if ready < 0 else [ready])):
            os.close(fd)
        for fd in (self._out, self._err):
            self._written[fd] = bytearray()
            self._open.add(fd)
            self._poll.register(fd, select.POLLIN)
        self._poll.register(self._control.fileno(), select.POLLIN)

    def _start_bubblewrap(self, bubblewrap: Bubblewrap, err: int) -> tuple[int, int | None]:
        """Return a descriptor that is readable when the sandbox is made, and the id of its first process."""
        held, self._hold = os.pipe()
        ready, done = os.pipe()
        info, told = os.pipe()
        self._bubblewrap = bubblewrap.start(held, done, err, told)
        for fd in (held, done, told):
            os.close(fd)
        os.write(self._hold, b".")
        with open(info, "rb") as file:  # noqa: PTH123
            text = file.read()
        found = text.partition(b'"child-pid":')[2].partition(b",")[0].strip(b" }\n")
        pid = int(found) if found else None
        if pid is not None:
            self._sandbox = os.pidfd_open(pid)
        return ready, pid

    def _be_inside(self, pid: int | None, ready: int, control: socket.socket, out: int, err: int) -> None:
        """Be `Inside` until the end of this process, which is a fork of the launcher."""
        try:
            self._control.close()
            if ready < 0 or (pid is not None and os.read(ready, 1)):
                Inside(self._task, self._confinement, control, out, err).run(pid, self._folder)
        except (OSError, EOFError) as problem:
            os.write(err, f"{problem}\n".encode(errors="replace"))
        finally:
            os._exit(0)

    def watch(self) -> None:
        """Read until the program has ended or passed a limit."""
        groups, most = self._launcher.groups, self._settings.number("memory")
        polled, next_look = self._limits["memory"] == "polled", 0.0
        while self._status is None and self.ended == "exit":
            now = time.monotonic()
            if now >= self._until:
                self.ended = "time"
            elif now >= next_look:
                next_look = now + _POLL
                if self._memory_used() > most if polled else groups.memory_ran_out():
                    self.ended = "memory"
            for fd, _ in self._poll.poll(max(0.0, min(self._until, next_look) - now) * 1000 + 1):
                if fd in self._written:
                    self._read(fd)
                elif not self._listen():
                    return

    def finish(self) -> None:
        """Kill what is left of it, read what it wrote, and let `Inside` send the files."""
        self._kill()
        if self.ended != "exit":
            os.kill(self._inside, signal.SIGKILL)
        for fd in (self._out, self._err):
            os.set_blocking(fd, self._sandbox is not None)
            while fd in self._open and self.ended == "exit" and self._read(fd):
                pass
        if self._launcher.groups.memory_ran_out():
            self.ended = "memory"
        if self.begun and self.ended == "exit":
            self._receive_files()
        self._control.close()
        os.waitpid(self._inside, 0)
        for fd in (self._out, self._err, *self._spaces):
            os.close(fd)
        if self._folder:
            from shutil import rmtree  # noqa: PLC0415 - it imports much

            rmtree(self._folder, ignore_errors=True)

    def report(self) -> list[bytes]:
        """Return the parts of the report: fields, the output, the errors, and each requested file."""
        most = self._settings.number("bytes")
        status = -1 if self._status is None else self._status
        fields = [
            f"ended={self.ended}",
            f"begun={'yes' if self.begun else 'no'}",
            f"status={status}",
            *(f"limit.{name}={value}" for name, value in self._limits.items()),
        ]
        out, err = (bytes(self._written[fd][:most]) for fd in (self._out, self._err))
        return ["\0".join(fields).encode(), out, err, *split(bytes(self._answer), len(self._task.outputs))]

    def _read(self, fd: int) -> bool:
        """Read some of the program's output; return whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        self._written[fd] += data
        if not data:
            self._open.discard(fd)
            self._poll.unregister(fd)
        if len(self._written[fd]) > self._settings.number("bytes"):
            self.ended = "output"
        return bool(data)

    def _listen(self) -> bool:
        """Read what `Inside` says: that it begins, or the status; return ``False`` if it has ended."""
        if self.begun:
            data = self._control.recv(STATUS.size, socket.MSG_WAITALL)
            if len(data) == STATUS.size:
                (self._status,) = STATUS.unpack(data)
            return bool(data)
        data, spaces, _, _ = socket.recv_fds(self._control, _MARKED, len(FOLDERS))
        self._spaces += spaces
        if len(data) == _MARKED:
            self.begun = True
            self._limits["files"] = f"landlock {data[1]}" if data[1] else "mounts"
        return bool(data)

    def _receive_files(self) -> None:
        """Let `Inside` send the requested files, and read them: no other process of the sandbox is left."""
        most = (self._settings.number("bytes") + SIZE.size) * len(self._task.outputs)
        self._control.sendall(b".")
        while len(self._answer) <= most and (data := self._control.recv(_CHUNK)):
            self._answer += data

    def _kill(self) -> None:
        """Kill every process of the sandbox but `Inside`, and return when none is left."""
        if self._hold >= 0:
            os.close(self._hold)
        if self._sandbox is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._sandbox, signal.SIGKILL)  # all others die with it
            select.select([self._sandbox], [], [])
            os.close(self._sandbox)
        if self._bubblewrap:
            os.waitpid(self._bubblewrap, 0)
        while self._folder and (left := set(descendants(os.getpid())) - {self._inside}):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _memory_used(self) -> int:
        """Return the bytes of memory of all processes, and of the files in memory."""
        total = sum(_memory_of(pid) for pid in descendants(os.getpid()) if pid != self._inside)
        for fd in self._spaces:
            space = os.fstatvfs(fd)
            total += (space.f_blocks - space.f_bfree) * space.f_frsize
        return total


def leave_root() -> None:
    """Become the unprivileged user 65534, for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _memory_of(pid: int) -> int:
    """Return the bytes of memory of a process that no file holds, a share of what it shares; 0 if it has ended."""
    kinds = ("RssAnon:", "RssShmem:", "VmSwap:")
    anonymous, shared, swapped = _sizes(f"/proc/{pid}/status", kinds)
    if shared:  # rare, and asking for the share takes longer
        (shared,) = _sizes(f"/proc/{pid}/smaps_rollup", ("Pss_Shmem:",)) or [shared]
    return anonymous + shared + swapped


def _sizes(path: str, names: Sequence[str]) -> list[int]:
    """Return the values in bytes of lines such as ``NAME: 12 kB``; 0 for each that is missing."""
    found = dict.fromkeys(names, 0)
    try:
        with open(path) as file:  # noqa: PTH123
            for line in file:
                name, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
                if name in found:
                    found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return list(found.values())


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below *pid*, the deepest first."""
    for child in children(pid):
        yield from descendants(child)
        yield child


def split(answer: bytes, count: int) -> list[bytes]:
    """Return each requested file with a byte before it that says whether it is there."""
    found = []
    for _ in range(count):
        if len(answer) < SIZE.size:
            found.append(b"-")
            continue
        (size,) = SIZE.unpack_from(answer)
        found.append(b"+" + answer[SIZE.size : SIZE.size + size - 1] if size else b"-")
        answer = answer[SIZE.size + max(size - 1, 0) :]
    return found


def write_report(parts: Sequence[bytes]) -> None:
    """Write a report to standard output: its size, then for each part a size and the bytes."""
    body = b"".join(SIZE.pack(len(part)) + part for part in parts)
    view = memoryview(SIZE.pack(len(body)) + body)
    while view:
        view = view[os.write(1, view) :]


def refuse(why: object) -> None:
    """Report that no sandbox can be made."""
    write_report([b"ended=refused\0begun=no\0status=-1", b"", f"{why}\n".encode(errors="replace")])


def main() -> None:
    """Make sandboxes until standard input ends."""
    launcher = Launcher(Settings(sys.argv[1:]))
    try:
        launcher.prepare()
    except Refusal as problem:
        refuse(problem)
    else:
        parent = os.getpid()
        child = os.fork()
        if not child:
            _be_server(launcher, parent)
        os.close(0)
        _, status = os.waitpid(child, 0)
        if launcher.groups.memory_ran_out() and os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
            write_report([b"ended=memory\0begun=yes\0status=-9", b"", b""])
    finally:
        launcher.groups.remove()


def _be_server(launcher: Launcher, parent: int) -> None:
    """Serve until the end of this process."""
    try:
        launcher.serve(parent)
    except (Refusal, OSError) as problem:
        refuse(problem)
    except Exception:  # noqa: BLE001 - a fork must not continue as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)
