"""Starts one program in a sandbox, watches its limits, and reports; its arguments are ``NAME=VALUE``.

A program of its own: it gives up the root user before bubblewrap starts, has no threads, and imports only the standard
library. Standard input goes to `inside` unread. The report on standard output: fields, then for the program's standard
output, its standard error and each requested file a size and the bytes.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

from .control_groups import ControlGroups  # noqa: E402
from .inside import SIZE  # noqa: E402

NOBODY: Final = 65534
"""The user and group id of the program."""
_SIGKILL: Final = 9  # the module signal imports much
_NEWNS: Final = 0x20000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_POLL: Final = 0.05
"""Seconds between two looks at the memory."""
_CHUNK: Final = 65536
_AFFINITY_CALLS: Final = {"x86_64": (0xC000003E, 203), "aarch64": (0xC00000B7, 122)}
"""By machine: the number of the architecture in filters of system calls, and the number of sched_setaffinity."""


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


class Mounts:
    """Makes folders that only root may reach readable for the sandbox: in a mount namespace of this process alone."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - only root needs it

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._count = 0

    def begin(self) -> bool:
        """Leave the common mount namespace; return ``False`` where this is not allowed."""
        if self._libc.unshare(_NEWNS):
            return False
        self._mount("none", "/", None, _RECURSIVE | _PRIVATE)
        return True

    def show(self, folders: Sequence[str]) -> list[str]:
        """Return a place for each folder where every user can reach it; ``/tmp`` is hidden from now on."""
        opened = [os.open(folder, os.O_PATH) for folder in folders]
        self._mount("none", "/tmp", "tmpfs", 0, "mode=755")  # noqa: S108 - its own, seen by nobody else
        places = []
        for number, folder in enumerate(opened):
            place = f"/tmp/{number}"  # noqa: S108
            os.mkdir(place)  # noqa: PTH102
            self._mount(f"/proc/self/fd/{folder}", place, None, _BIND)
            os.close(folder)
            places.append(place)
        return places

    def _mount(self, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
        said = (source.encode(), target.encode(), kind.encode() if kind else None)
        if self._libc.mount(*said, self._ctypes.c_ulong(flags), data.encode()):
            number = self._ctypes.get_errno()
            raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def bubblewrap(settings: Settings, places: Sequence[str], answer: int, files: dict[str, int]) -> list[str]:
    """Return the arguments of bubblewrap; *places* are where it finds the folders to read."""
    made = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    made += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL"]
    for folder, place in zip(settings.read, places, strict=True):
        made += ["--ro-bind", place, folder]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if os.path.islink(f"/{name}"):  # noqa: PTH114
            made += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]  # noqa: PTH115
        elif os.path.isdir(f"/{name}"):  # noqa: PTH112
            made += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"):
        made += ["--ro-bind-try", path, path]
    for path, file in files.items():
        made += ["--ro-bind-data", str(file), path]
    made += ["--proc", "/proc", "--dev", "/dev", *_tmpfs("/dev/shm", 64 << 20), "--remount-ro", "/dev"]  # noqa: S108
    made += [*_tmpfs("/data", settings.number("data")), *_tmpfs("/workspace", settings.number("workspace"))]
    made += [*_tmpfs("/tmp", settings.number("tmp")), "--remount-ro", "/", "--chdir", "/workspace"]  # noqa: S108
    return [*made, "--", settings["python"], "-I", "-S", "/inside.py", str(answer), "", "/"]


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--size", str(size), "--tmpfs", path]


def file_of(data: bytes) -> int:
    """Return a descriptor from which *data* can be read, also after exec."""
    file = os.memfd_create("sandbox", 0)
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def affinity_filter() -> bytes | None:
    """Return a filter of system calls that refuses to change the processors of a process, or ``None``."""
    machine = os.uname().machine
    if machine not in _AFFINITY_CALLS:
        return None
    architecture, call = _AFFINITY_CALLS[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, missing = 0x7FFF0000, 0x00050001, 0x00050026
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (answer, 0, 0, missing),
        (load, 0, 0, 0),
        (at_least, 0, 1, 0x40000000),
        (answer, 0, 0, missing),
        (equal, 0, 1, call),
        (answer, 0, 0, refuse),
        (answer, 0, 0, allow),
    ]
    return b"".join(struct.pack("=HBBI", *each) for each in program)


class Sandbox:
    """One run: the program, its limits, and what it said."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits: dict[str, str] = {}
        self.ended = "exit"
        self.groups = ControlGroups(settings["groups"])
        self._filter: bytes | None = None
        self._pid = 0
        self._folder = ""
        self._most = settings.number("bytes")

    def prepare(self) -> None:
        """Set the limits that hold from outside; raises `Refusal` where one is missing and must not be."""
        settings, groups = self.settings, self.groups
        self.limits["user"] = str(os.getuid() or NOBODY)
        if settings["bwrap"]:
            self.limits |= {"network": "namespace", "root": "read-only"}
        else:
            self._folder = f"/tmp/deedbook-sandbox-{os.getpid()}"  # noqa: S108 - made here, and it must not exist
            self.limits |= {"network": "degraded: only TCP is refused", "root": "degraded: files by Landlock alone"}
            _make_folders(self._folder)
        self.limits["memory"] = "cgroup" if groups.limit_memory(settings.number("memory")) else "polled"
        self.limits["processes"] = "cgroup" if groups.limit_processes(settings.number("processes")) else "rlimit"
        count = settings.number("cpus")
        if groups.limit_processors(count):
            self.limits["cpus"] = "cgroup"
            return
        present = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, present[:count])
        self._filter = affinity_filter()
        enforced = self._filter is not None or count >= (os.cpu_count() or 1)
        self.limits["cpus"] = "affinity" if enforced else "affinity, which the program can change"
        if not enforced and settings["degraded"] == "no":
            raise Refusal("the number of processors cannot be limited here")

    def start(self) -> tuple[int, int, int]:
        """Start it; return the descriptors of its standard output and error, and of the answers of `inside`."""
        pipes = [os.pipe() for _ in range(3)]
        self._pid = os.fork()
        if not self._pid:
            try:
                self._become([write for _, write in pipes])
            except (OSError, Refusal) as problem:
                os.write(2, f"{problem}\n".encode())
            finally:
                os._exit(125)
        for _, write in pipes:
            os.close(write)
        return tuple(read for read, _ in pipes)  # type: ignore[return-value] # there are three

    def _become(self, ends: Sequence[int]) -> None:
        """Turn this process into bubblewrap."""
        out, err, answer = ends
        os.dup2(err, 2)
        os.dup2(out, 1)
        os.set_inheritable(answer, True)
        self.groups.join()
        here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
        with open(f"{here}/inside.py", "rb") as file:  # noqa: PTH123
            inside = file_of(file.read())
        if self._folder:
            self._become_degraded(answer, inside)
        files = {"/inside.py": inside, "/etc/passwd": file_of(_PASSWD)}
        program, folders = self.settings["bwrap"], [*self.settings.read]
        home = self.settings["bwrap_home"]
        if os.getuid() == 0:
            mounts = Mounts()
            if mounts.begin():
                *places, home_place = mounts.show([*folders, home])
                program = program.replace(home, home_place, 1) if home != "/" else program
            else:
                places = folders
            leave_root()
        else:
            places = folders
        check_readable(folders, places)
        argv = bubblewrap(self.settings, places, answer, files)
        if self._filter is not None:
            at = argv.index("--")
            argv[at:at] = ["--seccomp", str(file_of(self._filter))]
        os.chdir("/")
        os.execve(program, argv, {})  # noqa: S606 - starting it is the purpose; its environment stays readable inside

    def _become_degraded(self, answer: int, inside: int) -> None:
        """Turn this process into `inside` without bubblewrap."""
        settings = self.settings
        if os.getuid() == 0:
            for folder in (self._folder, *(f"{self._folder}/{name}" for name in _FOLDERS)):
                os.chown(folder, NOBODY, NOBODY)
            leave_root()
        check_readable(settings.read, settings.read)
        readable = ":".join([*settings.read, *_SYSTEM, self._folder])
        argv = ["python", "-I", "-S", f"/proc/self/fd/{inside}", str(answer), self._folder, readable]
        os.chdir("/")
        os.execve(settings["python"], argv, {})  # noqa: S606 - starting it is the purpose

    def watch(self, out: int, err: int, answer: int) -> list[bytearray]:
        """Read until it has ended or passed a limit; return output, errors and answers."""
        said = {out: bytearray(), err: bytearray(), answer: bytearray()}
        most = {out: self._most, err: self._most, answer: self._most * (self.settings.number("outputs") + 1) + 4096}
        until = time.monotonic() + float(self.settings["seconds"])
        polled = self.limits["memory"] == "polled"
        poll = select.poll()
        for fd in said:
            poll.register(fd, select.POLLIN)
        open_ends = set(said)
        while open_ends and self.ended == "exit":
            left = until - time.monotonic()
            for fd, _ in poll.poll(max(0.0, min(left, _POLL)) * 1000):
                data = os.read(fd, _CHUNK)
                said[fd] += data
                if not data:
                    poll.unregister(fd)
                    open_ends.discard(fd)
                if len(said[fd]) > most[fd]:
                    self.ended = "output"
            if time.monotonic() >= until:
                self.ended = "time"
            if self._memory_used() > self.settings.number("memory") if polled else self.groups.memory_ran_out():
                self.ended = "memory"
        return list(said.values())

    def finish(self) -> int:
        """Kill what is left; return the status of bubblewrap."""
        if self.ended != "exit":
            os.kill(self._pid, _SIGKILL)  # it was not waited for, so its id is still its own
        _, status = os.waitpid(self._pid, 0)
        if self.groups.memory_ran_out():
            self.ended = "memory"
        self.groups.remove()
        if self._folder:
            from shutil import rmtree  # noqa: PLC0415 - it imports much

            rmtree(self._folder, ignore_errors=True)
        return os.waitstatus_to_exitcode(status)

    def _memory_used(self) -> int:
        """Return the bytes of memory of all processes, shared pages counted once each, and of the files in tmpfs."""
        total, seen = 0, False
        for pid in descendants(self._pid):
            total += _memory_of(pid)
            if not seen and (files := _files_of(pid)) is not None:
                total, seen = total + files, True
        return total


def leave_root() -> None:
    """Become the unprivileged user 65534, for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def check_readable(folders: Sequence[str], places: Sequence[str]) -> None:
    """Raise `Refusal` where this user may not read one of *places*, which are known as *folders*."""
    for folder, place in zip(folders, places, strict=True):
        if not os.access(place, os.R_OK | os.X_OK):
            raise Refusal(f"{folder} cannot be read by user {os.getuid()}; let others read it")


def _make_folders(folder: str) -> None:
    os.mkdir(folder, 0o700)  # noqa: PTH102
    for name in _FOLDERS:
        os.mkdir(f"{folder}/{name}", 0o700)  # noqa: PTH102


def _memory_of(pid: int) -> int:
    """Return the bytes of memory that a process shares with no file; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            return sum(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) * 1024
    except (OSError, ValueError, IndexError):
        return 0


def _files_of(pid: int) -> int | None:
    """Return the bytes in the folders in memory that a process sees, or ``None``."""
    folders = ("/workspace", "/tmp", "/data", "/dev/shm")  # noqa: S108
    try:
        spaces = [os.statvfs(f"/proc/{pid}/root{folder}") for folder in folders]
    except OSError:
        return None
    return sum((space.f_blocks - space.f_bfree) * space.f_frsize for space in spaces)


_FOLDERS: Final = ("workspace", "data", "tmp")
_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/proc")
"""What a program in a degraded sandbox may read in addition to its environment."""
_ANSWERED: Final = 6
"""Bytes of a complete answer before the files: a mark, the version of Landlock, the status."""
_PASSWD: Final = f"nobody:x:{NOBODY}:{NOBODY}:nobody:/tmp:/bin/false\n".encode()


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below *pid*, the deepest first."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
            children = [int(each) for each in file.read().split()]
    except OSError:
        children = []
    for child in children:
        yield from descendants(child)
        yield child


def report(sandbox: Sandbox, status: int, said: Sequence[bytearray]) -> None:
    """Write the report to standard output."""
    out, err, answer = (bytes(each) for each in said)
    outputs: list[bytes] = []
    begun, inner = answer[:1] == b"+", None
    if begun:
        version = answer[1]
        sandbox.limits["files"] = f"landlock {version}" if version else "mounts"
    if len(answer) >= _ANSWERED:
        (inner,) = struct.unpack_from("!i", answer, 2)
        outputs = split(answer[_ANSWERED:], sandbox.settings.number("outputs"))
    fields = [
        f"ended={sandbox.ended}",
        f"begun={'yes' if begun else 'no'}",
        f"status={status if inner is None else inner}",
        *(f"limit.{name}={value}" for name, value in sandbox.limits.items()),
    ]
    head = "\0".join(fields).encode()
    parts = [head, out[: sandbox.settings.number("bytes")], err[: sandbox.settings.number("bytes")], *outputs]
    with open(1, "wb") as file:
        file.writelines(SIZE.pack(len(part)) + part for part in parts)


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


def main() -> None:
    """Run one program; exit with status 3 and the reason on standard error if there is no report."""
    sandbox = Sandbox(Settings(sys.argv[1:]))
    try:
        sandbox.prepare()
    except Refusal as problem:
        sandbox.groups.remove()
        os.write(2, f"{problem}\n".encode())
        sys.exit(3)
    ends = sandbox.start()
    said = sandbox.watch(*ends)
    report(sandbox, sandbox.finish(), said)
