"""System calls that Python 3.11 has no functions for: namespaces, mounts, capabilities, filters and Landlock."""

from __future__ import annotations

import ctypes
import os
import struct
from fcntl import ioctl

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

NEW_NAMESPACE_OF_MOUNTS: Final = 0x20000
BIND, READ_ONLY, NO_SETUID, NO_DEVICES, REMOUNT, RECURSIVE, PRIVATE = 0x1000, 1, 2, 4, 32, 0x4000, 0x40000
_PDEATHSIG, _DUMPABLE, _SECCOMP, _DROP_BOUNDING, _SUBREAPER, _NO_NEW_PRIVS, _AMBIENT = 1, 4, 22, 24, 36, 38, 47
_SIGKILL: Final = 9
_PARENT_NAMESPACE: Final = 0xB702
"""The ioctl NS_GET_PARENT."""
_CAPABILITIES_VERSION: Final = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _BENEATH = 1, 1
_READ: Final = 0b1101
"""Execute, read files, list folders."""
_OF_FILES: Final = 0b111 | 1 << 14 | 1 << 15
"""The rights that a rule for one file may have."""
_RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The rights to files that each version of Landlock knows."""
_ARCHITECTURES: Final = {
    "x86_64": (0xC000003E, {"sched_setaffinity": 203, "memfd_create": 319, "memfd_secret": 447, "shmget": 29}, 250),
    "aarch64": (0xC00000B7, {"sched_setaffinity": 122, "memfd_create": 279, "memfd_secret": 447, "shmget": 194}, 219),
}
"""By machine: its number in filters of system calls, the numbers of calls that are refused, and that of keyctl."""
_JOIN_SESSION_KEYRING: Final = 1


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


class SystemCalls:
    """Calls of the C library. Each raises `OSError` unless its description says otherwise."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long

    # --- namespaces and mounts ----------------------------------------------------------------------------------------

    def leave_mounts(self) -> bool:
        """Get a mount namespace for this process alone; return ``False`` where this is not allowed."""
        if self._libc.unshare(NEW_NAMESPACE_OF_MOUNTS):
            return False
        self.mount("none", "/", None, RECURSIVE | PRIVATE)
        return True

    def mount(self, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
        """Mount *source* on *target*."""
        texts = (source.encode(), target.encode(), kind.encode() if kind else None)
        self._check(self._libc.mount(*texts, ctypes.c_ulong(flags), data.encode()), f"mount on {target}")

    def join(self, namespace: int) -> None:
        """Enter the namespace that a descriptor refers to; one of processes applies to children only."""
        self._check(self._libc.setns(namespace, 0), "setns")

    def parent_of(self, namespace: int) -> int:
        """Return a descriptor of the user namespace that contains *namespace*."""
        return ioctl(namespace, _PARENT_NAMESPACE)

    # --- rights -------------------------------------------------------------------------------------------------------

    def drop_capabilities(self) -> None:
        """Give up all capabilities, and those that a program could get when it is executed."""
        number = 0
        while not self._prctl(_DROP_BOUNDING, number):
            number += 1
        self._prctl(_AMBIENT, 4)
        head = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES_VERSION, 0))
        self._check(self._libc.capset(head, ctypes.create_string_buffer(24)), "capset")

    def refuse_new_privileges(self) -> None:
        """Gain no rights from programs that are executed."""
        self._check(self._prctl(_NO_NEW_PRIVS, 1), "no_new_privs")

    def hide(self) -> None:
        """Keep processes of the same user from reading this one's memory and descriptors."""
        self._check(self._prctl(_DUMPABLE, 0), "dumpable")

    def adopt_orphans(self) -> None:
        """Become the parent of descendants that lose theirs."""
        self._check(self._prctl(_SUBREAPER, 1), "subreaper")

    def die_with_parent(self, parent: int) -> None:
        """Die when the process *parent*, which started this one, ends."""
        self._check(self._prctl(_PDEATHSIG, _SIGKILL), "pdeathsig")
        if os.getppid() != parent:
            os._exit(1)

    def forget_keys(self) -> None:
        """Get an empty session keyring, where the system has keyrings."""
        if numbers := _ARCHITECTURES.get(os.uname().machine):
            self._call(numbers[2], _JOIN_SESSION_KEYRING, None)

    def filter_calls(self, program: bytes) -> None:
        """Apply a filter of system calls to this process and its children."""
        given = _Filter(len(program) // 8, program)
        self._check(self._libc.prctl(_SECCOMP, ctypes.c_ulong(2), ctypes.byref(given), 0, 0), "seccomp")

    # --- Landlock -----------------------------------------------------------------------------------------------------

    def landlock_version(self) -> int:
        """Return the version of Landlock that the system has; 0 where it has none."""
        return max(0, self._call(_CREATE_RULESET, None, 0, _VERSION))

    def restrict_files(self, writable: Sequence[str], readable: Sequence[str]) -> bool:
        """Let this process write beneath *writable*, read and execute beneath *readable*, and reach no other files.

        It may neither connect by TCP nor signal a process outside, where the system can limit that. Return ``False``
        without Landlock.
        """
        version = self.landlock_version()
        if version < 1:
            return False
        rights = _RIGHTS[max(each for each in _RIGHTS if each <= version)]
        network = 3 if version >= 4 else 0
        scoped = 3 if version >= 6 else 0
        packed = struct.pack("@QQQ", rights, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
        rules = self._check(self._call(_CREATE_RULESET, packed, len(packed), 0), "Landlock")
        try:
            for path, access in [
                *((each, rights) for each in writable),
                *((each, rights & _READ) for each in readable),
            ]:
                self._allow(rules, path, access)
            self.refuse_new_privileges()
            self._check(self._call(_RESTRICT_SELF, rules, 0), "Landlock")
        finally:
            os.close(rules)
        return True

    def _allow(self, rules: int, path: str, access: int) -> None:
        try:
            folder = os.open(path, os.O_PATH)
        except OSError:
            return  # what is not there needs no rule
        if not os.path.isdir(folder):  # noqa: PTH112 - a descriptor
            access &= _OF_FILES
        try:
            self._check(self._call(_ADD_RULE, rules, _BENEATH, struct.pack("=Qi", access, folder), 0), "Landlock")
        finally:
            os.close(folder)

    def _prctl(self, option: int, value: int) -> int:
        """Call prctl, whose arguments are all as long as a pointer; return its result."""
        return int(self._libc.prctl(option, *(ctypes.c_ulong(each) for each in (value, 0, 0, 0))))

    def _call(self, number: int, *arguments: Any) -> int:
        given = (ctypes.c_ulong(each) if isinstance(each, int) else each for each in (number, *arguments))
        return int(self._libc.syscall(*given))

    def _check(self, result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")
        return result


def refusing_filter(*, memory: bool, affinity: bool) -> bytes | None:
    """Return a filter of system calls, or ``None`` on an unknown machine or where nothing is to be refused.

    *affinity*: to change the processors of a process is not permitted. *memory*: memory that belongs to no process and
    no folder (memfd_create, shmget) does not exist, because it cannot be added up.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or not (memory or affinity):
        return None
    architecture, calls, _ = _ARCHITECTURES[machine]
    return b"".join(struct.pack("=HBBI", *each) for each in _filter(architecture, calls, memory, affinity))


def _filter(
    architecture: int, calls: dict[str, int], memory: bool, affinity: bool
) -> Iterator[tuple[int, int, int, int]]:  # fmt: skip
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, not_permitted, missing = 0x7FFF0000, 0x00050001, 0x00050026
    yield load, 0, 0, 4
    yield equal, 1, 0, architecture
    yield answer, 0, 0, missing
    yield load, 0, 0, 0
    yield at_least, 0, 1, 0x40000000  # a second set of numbers on x86_64
    yield answer, 0, 0, missing
    for name, number in calls.items():
        if affinity if name == "sched_setaffinity" else memory:
            yield equal, 0, 1, number
            yield answer, 0, 0, not_permitted if name == "sched_setaffinity" else missing
    yield answer, 0, 0, allow
