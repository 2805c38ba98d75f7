"""The process that enters a sandbox, limits itself, and starts the program: a fork of the launcher.

Bubblewrap has made the namespaces and the mounts before, and a program of the system keeps them. This process joins
them, unpacks the files that it reads from standard input, gives up what it may do, and starts the program, which
inherits all limits. The program cannot see this process: it stays outside the namespace of processes. In a degraded
sandbox there is no bubblewrap, and Landlock alone limits what the program reaches.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from signal import SIGPIPE, SIGXFSZ

from .system_calls import BIND, NO_DEVICES, NO_SETUID, READ_ONLY, REMOUNT, SystemCalls

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

SIZE: Final = struct.Struct("!Q")
"""The number of bytes that follow."""
STATUS: Final = struct.Struct("!i")
FOLDERS: Final = ("/workspace", "/tmp", "/data", "/dev/shm")  # noqa: S108 - the sandbox's own
"""The folders in memory."""
_WRITABLE: Final = ("/workspace", "/tmp", "/dev")  # noqa: S108
_NAMESPACES: Final = ("mnt", "pid", "net", "ipc", "uts", "cgroup")
_OWN_PROCESSES: Final = 3
"""Processes of the sandbox itself that count against the limit of its user: this one, the first, and the holder."""
_MOST_FILES: Final = 1024
"""Files that a process may have open."""


def read(size: int) -> bytes:
    """Return exactly *size* bytes of standard input; raises `EOFError`."""
    found = bytearray()
    while len(found) < size:
        more = os.read(0, min(size - len(found), 1 << 20))
        if not more:
            raise EOFError("the request ended early")
        found += more
    return bytes(found)


def read_fields() -> list[bytes]:
    """Return a list of fields: a size, then the fields separated by NUL."""
    (size,) = SIZE.unpack(read(SIZE.size))
    return read(size).split(b"\0") if size else []


class Task:
    """What one request asks for, up to the contents of the files, which follow on standard input."""

    def __init__(self) -> None:
        self.argv = read_fields()
        self.env = dict(field.split(b"=", 1) for field in read_fields())
        self.seconds = float(read_fields()[0])
        self.outputs = read_fields()
        self.files = read_fields()


class Confinement:
    """How a program is confined: limits that are the same for each request to a launcher.

    *readable* are the folders that Landlock lets it read (``/``: bubblewrap has left nothing else), *refusing* is a
    filter of system calls. *data* limits the memory of a single process where the memory of all is polled, and *most*
    the bytes of a file that is returned.
    """

    def __init__(
        self,
        *,
        system: SystemCalls,
        readable: Sequence[str],
        processes: int,
        data: int,
        refusing: bytes | None,
        most: int,
    ) -> None:
        self.system = system
        self.readable = readable
        self.most = most
        self._processes = processes
        self._data = data
        self._filter = refusing

    def apply(self, root: str) -> None:
        """Limit this process and its children to *root*; raises `OSError`."""
        system = self.system
        system.forget_keys()
        system.drop_capabilities()
        system.refuse_new_privileges()
        if not system.restrict_files([root + folder for folder in _WRITABLE], self.readable) and root:
            raise OSError("Landlock is not available")
        self.limit(0)
        if self._filter:
            system.filter_calls(self._filter)

    def limit(self, pid: int) -> None:
        """Set the resource limits of the process *pid* (0: this one), in addition to what limits all together."""
        limits = {
            resource.RLIMIT_NPROC: self._processes + _OWN_PROCESSES,
            resource.RLIMIT_NOFILE: _MOST_FILES,
            resource.RLIMIT_CORE: 0,
            **({resource.RLIMIT_DATA: self._data} if self._data else {}),
        }
        for kind, value in limits.items():
            resource.prlimit(pid, kind, (value, value))


class Inside:
    """One run.

    *control* leads to the launcher. It gets a mark and the version of Landlock, with descriptors of the folders in
    memory; then the status; and after its answer the contents of the requested files.
    """

    def __init__(self, task: Task, confinement: Confinement, control: socket.socket, out: int, err: int) -> None:
        self._task = task
        self._confinement = confinement
        self._control = control
        self._out, self._err = out, err

    def run(self, sandbox: int | None, root: str) -> None:
        """Run the program in the namespaces of the process *sandbox*, or else confined to the folder *root*."""
        self._close_others()
        system, folders = self._confinement.system, []
        if sandbox is not None:
            user = self._enter(sandbox)
        stdin = self._unpack(root)
        if sandbox is not None:
            flags = REMOUNT | BIND | READ_ONLY | NO_SETUID | NO_DEVICES
            system.mount("none", "/data", None, flags)
            system.join(user)
            os.close(user)
            folders = [os.open(folder, os.O_PATH) for folder in FOLDERS]
        self._confinement.apply(root)
        socket.send_fds(self._control, [b"+%c" % system.landlock_version()], folders)
        for folder in folders:
            os.close(folder)
        os.chdir(f"{root}/workspace")
        child = self._start(stdin)
        for fd in (stdin, self._out, self._err, 2):
            os.close(fd)
        if child is None:
            self._control.sendall(STATUS.pack(126))
        else:
            _, status = os.waitpid(child, 0)
            self._control.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))
        if self._control.recv(1):
            self._send(root)

    def _enter(self, sandbox: int) -> int:
        """Join the namespaces of a process but for its own of users, and return a descriptor of that.

        They belong to a namespace of users above it, in which this process may still mount. The processes that keep the
        namespaces get the limits of the program, which might otherwise make one of them act for it.
        """
        for pid in (sandbox, *children(sandbox)):
            self._confinement.limit(pid)
        system, folder = self._confinement.system, f"/proc/{sandbox}/ns"
        user, *others = [os.open(f"{folder}/{name}", os.O_RDONLY) for name in ("user", *_NAMESPACES)]
        owner = system.parent_of(user)
        system.join(owner)
        for each in others:
            system.join(each)
        for each in (owner, *others):
            os.close(each)
        return user

    def _close_others(self) -> None:
        """Close the descriptors of the launcher."""
        least = 3
        for kept in sorted((self._out, self._err, self._control.fileno())):
            os.closerange(least, kept)
            least = kept + 1
        os.closerange(least, _MOST_FILES)

    def _unpack(self, root: str) -> int:
        """Write the files below *root*, in the order of the request; return a descriptor of the program's input."""
        made = set()
        files = self._task.files
        for name, size in zip(files[::2], files[1::2], strict=True):
            path = root + os.fsdecode(name)
            folder = path.rpartition("/")[0]
            if folder not in made:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - pathlib imports much
                made.add(folder)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            _copy(int(size), file)
            os.close(file)
        (size,) = SIZE.unpack(read(SIZE.size))
        stdin = os.memfd_create("stdin")
        _copy(size, stdin)
        os.lseek(stdin, 0, os.SEEK_SET)
        return stdin

    def _start(self, stdin: int) -> int | None:
        """Start the program; write to its standard error why that fails."""
        task = self._task
        places = [task.argv[0]]
        if b"/" not in task.argv[0]:
            places = [folder + b"/" + task.argv[0] for folder in task.env[b"PATH"].split(b":")]
        streams = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((stdin, self._out, self._err))]
        problem: OSError = FileNotFoundError(2, os.strerror(2))
        for place in places:
            try:
                return os.posix_spawn(
                    place, task.argv, task.env, file_actions=streams, setsid=True, setsigdef=(SIGPIPE, SIGXFSZ)
                )
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as other:
                problem = other
        text = f"{os.fsdecode(task.argv[0])} was not started: {problem.strerror}\n"
        os.write(self._err, text.encode(errors="replace"))
        return None

    def _send(self, root: str) -> None:
        """Send each requested file: its size plus one and its bytes, or 0 if there is none."""
        for name in self._task.outputs:
            data = content(os.fsencode(f"{root}/workspace/") + name, self._confinement.most)
            self._control.sendall(SIZE.pack(0 if data is None else len(data) + 1) + (data or b""))


def children(pid: int) -> list[int]:
    """Return the processes that *pid* started."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def _copy(size: int, to: int) -> None:
    """Write the next *size* bytes of standard input."""
    while size:
        data = read(min(size, 1 << 20))
        size -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(to, view) :]


def content(path: bytes, most: int) -> bytes | None:
    """Return a regular file of at most *most* bytes, or ``None``."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not os.path.isfile(file):  # noqa: PTH113 - a descriptor
        os.close(file)
        return None
    with open(file, "rb") as opened:  # noqa: PTH123
        data = opened.read(most + 1)
    return data if len(data) <= most else None
