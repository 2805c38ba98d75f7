"""The first program inside the sandbox: ``python -I -S inside.py``, a file of the standard library alone.

It unpacks the files that it reads from standard input, limits itself, runs the program, and sends the contents of the
files that the caller asked for. Bubblewrap has taken away the network and all other files before; here Landlock makes
everything read-only except for the program's own folders. In a degraded sandbox there is no bubblewrap, and Landlock
alone limits what the program reaches. Whatever this process says is as trustworthy as the program that it runs.
"""

from __future__ import annotations

import os
import resource
import struct
import sys

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

SIZE: Final = struct.Struct("!Q")
"""The number of bytes that follow."""
WRITABLE: Final = ("/workspace", "/tmp")  # noqa: S108 - the sandbox's own
_NO_NEW_PRIVS, _DUMPABLE = 38, 4
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION: Final = 1
_BENEATH: Final = 1
_READ: Final = 0b1101
"""Execute, read files, list folders."""
_OF_FILES: Final = 0b111 | 1 << 14 | 1 << 15
"""The rights that a rule for one file may have."""
_RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights to files that each version of Landlock knows."""


def read(size: int) -> bytes:
    """Return exactly *size* bytes of standard input; raises `EOFError`."""
    found = bytearray()
    while len(found) < size:
        more = os.read(0, min(size - len(found), 1 << 20))
        if not more:
            raise EOFError("the files ended early")
        found += more
    return bytes(found)


def read_fields() -> list[bytes]:
    """Return a list of fields: a size, then the fields separated by NUL."""
    (size,) = SIZE.unpack(read(SIZE.size))
    return read(size).split(b"\0") if size else []


def unpack(root: str) -> None:
    """Write the files below *root*: fields in groups of two (path, size), then the contents in this order."""
    fields = read_fields()
    for name, size in zip(fields[::2], fields[1::2], strict=True):
        path = root + os.fsdecode(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib imports much
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        left = int(size)
        while left:
            data = read(min(left, 1 << 20))
            left -= len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
        os.close(file)


class Landlock:
    """Landlock by system calls, for which the C library has no functions."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - after the fork it would be imported in each child

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long

    def version(self) -> int:
        """Return the version that the system has; 0 or less where it has none."""
        return int(self._call(_CREATE_RULESET, None, 0, _VERSION))

    def protect(self) -> None:
        """Keep other processes from reading this one's memory and descriptors."""
        self._libc.prctl(*(self._ctypes.c_ulong(each) for each in (_DUMPABLE, 0, 0, 0, 0)))

    def restrict(self, writable: Sequence[str], readable: Sequence[str]) -> bool:
        """Let this process write beneath *writable*, read and execute beneath *readable*, and reach nothing else.

        It may neither connect by TCP nor signal a process outside, where the system can limit that.
        """
        version = self.version()
        if version < 1:
            return False
        rights = _RIGHTS[max(each for each in _RIGHTS if each <= version)]
        network = 3 if version >= 4 else 0
        scoped = 3 if version >= 6 else 0
        fields = struct.pack("@QQQ", rights, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
        rules = self._call(_CREATE_RULESET, fields, len(fields), 0)
        if rules < 0:
            return False
        allowed = [(path, rights) for path in writable] + [(path, rights & _READ) for path in readable]
        if not all(self._allow(rules, path, access) for path, access in allowed):
            return False
        self._libc.prctl(*(self._ctypes.c_ulong(each) for each in (_NO_NEW_PRIVS, 1, 0, 0, 0)))
        return self._call(_RESTRICT_SELF, rules, 0) == 0

    def _allow(self, rules: int, path: str, access: int) -> bool:
        try:
            folder = os.open(path, os.O_PATH)
        except OSError:
            return True  # what is not there needs no rule
        if not os.path.isdir(folder):  # noqa: PTH112 - a descriptor
            access &= _OF_FILES
        try:
            return self._call(_ADD_RULE, rules, _BENEATH, struct.pack("=Qi", access, folder), 0) == 0
        finally:
            os.close(folder)

    def _call(self, number: int, *arguments: Any) -> int:
        word = self._ctypes.c_ulong
        given = (word(each) if isinstance(each, int) else each for each in (number, *arguments))
        return int(self._libc.syscall(*given))


def limit(settings: dict[bytes, bytes]) -> None:
    """Limit this process and its children by resource limits, in addition to what limits them outside."""
    for name, kind in ((b"processes", resource.RLIMIT_NPROC), (b"address", resource.RLIMIT_AS)):
        if value := int(settings.get(name, b"0")):
            resource.setrlimit(kind, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(argv: list[bytes], env: dict[bytes, bytes], settings: dict[bytes, bytes], landlock: Landlock) -> int:
    """Run the program and return its status, minus the number of the signal that ended it."""
    child = os.fork()
    if child:
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == child:
                return os.waitstatus_to_exitcode(status)
    try:
        start(argv, env, settings, landlock)
    finally:
        os._exit(126)
    return 126


def start(argv: list[bytes], env: dict[bytes, bytes], settings: dict[bytes, bytes], landlock: Landlock) -> None:
    """Become the program; say on standard error why that fails."""
    try:
        root, readable = os.fsdecode(settings[b"root"]), os.fsdecode(settings[b"readable"]).split(":")
        writable = ("/dev", *(root + folder for folder in WRITABLE))
        if not landlock.restrict(writable, readable) and root:
            os.write(2, b"Landlock is not available\n")
            return
        limit(settings)
        os.closerange(3, 4096)
        os.chdir(f"{root}/workspace")
        os.execvpe(argv[0], argv, env)  # noqa: S606 - starting the program is its purpose
    except OSError as problem:
        os.write(2, f"{os.fsdecode(argv[0])} was not started: {problem.strerror or problem}\n".encode())


def send(names: list[bytes], folder: bytes, most: int, to: int) -> None:
    """Send each file that was asked for: a size and its bytes, or the size of nothing plus one if there is none."""
    for name in names:
        data = content(os.path.join(folder, name), most)  # noqa: PTH118
        os.write(to, SIZE.pack(0 if data is None else len(data) + 1))
        view = memoryview(data or b"")
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


def main() -> int:
    """Do what standard input asks for; the arguments: the descriptor to answer on, a root, what may be read."""
    answer = int(sys.argv[1])
    root, readable = sys.argv[2:]
    argv = read_fields()
    env = dict(field.split(b"=", 1) for field in read_fields())
    settings = dict(field.split(b"=", 1) for field in read_fields())
    settings |= {b"root": os.fsencode(root), b"readable": os.fsencode(readable)}
    outputs = read_fields()
    unpack(root)
    os.set_inheritable(answer, False)
    landlock = Landlock()
    landlock.protect()
    os.write(answer, b"+%c" % max(landlock.version(), 0))
    status = run(argv, env, settings, landlock)
    os.write(answer, struct.pack("!i", status))
    send(outputs, os.fsencode(f"{root}/workspace"), int(settings[b"bytes"]), answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
