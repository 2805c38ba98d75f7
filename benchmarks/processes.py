"""Other interpreters: what starting one costs, and how much memory it holds at the end."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PEAK: Final = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"


def resident(code: str) -> int:
    """Return the most memory, in bytes, that an interpreter held that ran *code*; 0 where the system does not say."""
    if not Path("/proc/self/status").exists():
        return 0
    ran = subprocess.run([sys.executable, "-c", code + _PEAK], check=True, capture_output=True, text=True)
    return int(ran.stdout.split()[-1]) * 1024


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU time that an interpreter with these *arguments* takes from start to end."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{_told(arguments)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def _told(arguments: Sequence[str]) -> str:
    return " ".join(["python", *arguments])
