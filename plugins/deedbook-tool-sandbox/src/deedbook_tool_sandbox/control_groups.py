"""Control groups (cgroups, version 1 and 2) for one sandbox: memory, processor time and number of processes."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

_PERIOD: Final = 100_000
"""The period of a processor quota, in microseconds."""
_PREFIX: Final = "deedbook-sandbox-"
_PATIENCE: Final = 2.0
"""Seconds for killed processes to leave their group."""


class ControlGroups:
    """The groups of one sandbox: a limit is in force only if a group for it could be made."""

    def __init__(self, root: str) -> None:
        self._folders: dict[str, str] = {}
        for controller in ("memory", "cpu", "pids"):
            for parent in _parents(root, controller):
                _remove_abandoned(parent)
                folder = f"{parent}/{_PREFIX}{os.getpid()}"
                if _make(folder):
                    self._folders[controller] = folder
                    break

    def limit_memory(self, size: int) -> bool:
        """Limit memory, swap and what is written to tmpfs, together, to *size* bytes."""
        folder = self._folders.get("memory")
        if folder is None:
            return False
        if _write(f"{folder}/memory.max", size):
            _write(f"{folder}/memory.swap.max", 0)
            _write(f"{folder}/memory.oom.group", 1)
            return True
        if not _write(f"{folder}/memory.limit_in_bytes", size):
            return False
        _write(f"{folder}/memory.memsw.limit_in_bytes", size)
        return True

    def limit_processors(self, count: float) -> bool:
        """Limit the processor time to that of *count* processors."""
        folder = self._folders.get("cpu")
        if folder is None:
            return False
        quota = int(count * _PERIOD)
        if _write(f"{folder}/cpu.max", f"{quota} {_PERIOD}"):
            return True
        return _write(f"{folder}/cpu.cfs_period_us", _PERIOD) and _write(f"{folder}/cpu.cfs_quota_us", quota)

    def limit_processes(self, count: int) -> bool:
        """Limit the number of processes and threads."""
        return "pids" in self._folders and _write(f"{self._folders['pids']}/pids.max", count)

    def join(self) -> None:
        """Move this process into the groups; raises `OSError`."""
        for folder in set(self._folders.values()):
            with open(f"{folder}/cgroup.procs", "w") as file:  # noqa: PTH123 - pathlib imports much
                file.write("0")

    def memory_ran_out(self) -> bool:
        """Return whether a process was killed, or a write refused, because the memory was used up."""
        folder = self._folders.get("memory", "")
        lines = _read(f"{folder}/memory.events") + _read(f"{folder}/memory.oom_control")
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in lines)

    def remove(self) -> None:
        """Remove the groups, whose processes have ended or are about to."""
        until = time.monotonic() + _PATIENCE
        for folder in set(self._folders.values()):
            while not _remove(folder) and time.monotonic() < until:
                time.sleep(0.002)


def _parents(root: str, controller: str) -> Iterator[str]:
    """Yield the folders in which a group with limits of *controller* may be possible, the nearest first."""
    own = _own_groups()
    first = f"{root}/{controller}"
    if os.path.exists(f"{first}/cgroup.procs"):  # noqa: PTH110
        path = own.get(controller, "/").rstrip("/")
        yield from (each for each in (first + path, first) if os.path.isdir(each))  # noqa: PTH112
    second = own.get("", "/").rstrip("/")
    for path in dict.fromkeys((second, os.path.dirname(second).rstrip("/"))):  # noqa: PTH120
        if controller in " ".join(_read(f"{root}{path}/cgroup.subtree_control")).split():
            yield root + path


def _own_groups() -> dict[str, str]:
    """Return the path of this process's group by controller; version 2 is named by the empty text."""
    found: dict[str, str] = {}
    for line in _read("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _remove_abandoned(parent: str) -> None:
    """Remove the empty groups of launchers that were killed."""
    for name in os.listdir(parent):  # noqa: PTH208
        number = name.removeprefix(_PREFIX)
        if number != name and not os.path.exists(f"/proc/{number}"):  # noqa: PTH110
            _remove(f"{parent}/{name}")


def _make(folder: str) -> bool:
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileExistsError:
        return True
    except OSError:
        return False
    return os.path.exists(f"{folder}/cgroup.procs")  # noqa: PTH110


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(path: str) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []


def _write(path: str, value: float | str) -> bool:
    try:
        with open(path, "w") as file:  # noqa: PTH123
            file.write(str(value))
    except OSError:
        return False
    return True
