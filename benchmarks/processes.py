"""Other processes: what they take from start to end, in turn with each other, and how much memory they held."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Final

import attrs

from benchmarks.rounds import Times

_PEAK: Final = "\nprint(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"


@attrs.frozen
class Program:
    """A command to be run from start to end; *env* is its whole environment, and *answer* what it has to print."""

    command: tuple[str, ...]
    stdin: bytes = b""
    cwd: Path | None = None
    env: Mapping[str, str] | None = None
    answer: bytes | None = None


def python(*arguments: str) -> Program:
    """Return a new interpreter like this one, with these *arguments*."""
    return Program((sys.executable, *arguments))


def in_turns(programs: Mapping[str, Program], rounds: int) -> tuple[Times, Times]:
    """Run all *programs* in turn, every other round backwards; return their elapsed times and their CPU times.

    Each is run once before that is counted. Raises `RuntimeError` if one fails.
    """
    for program in programs.values():
        _run(program)
    elapsed: dict[str, list[float]] = {name: [] for name in programs}
    cpu: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(rounds):
        for name in list(programs) if turn % 2 == 0 else reversed(list(programs)):
            took, spent = _run(programs[name])
            elapsed[name].append(took)
            cpu[name].append(spent)
    return Times(elapsed), Times(cpu)


def resident(code: str) -> int:
    """Return the most memory, in bytes, that an interpreter held that ran *code*; 0 where the system does not say."""
    if not Path("/proc/self/status").exists():
        return 0
    ran = subprocess.run([sys.executable, "-c", code + _PEAK], check=True, capture_output=True, text=True)
    return int(ran.stdout.split()[-1]) * 1024


def _run(program: Program) -> tuple[int, float]:
    """Return the nanoseconds, elapsed and of CPU, of one program and of all that it started and waited for."""
    with tempfile.TemporaryFile() as errors:
        begun = perf_counter_ns()
        process = subprocess.Popen(
            program.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=program.cwd,
            env=program.env,
        )
        assert process.stdin
        assert process.stdout
        with suppress(BrokenPipeError):
            process.stdin.write(program.stdin)
        with suppress(BrokenPipeError):
            process.stdin.close()
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = perf_counter_ns() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if process.returncode or (program.answer is not None and out != program.answer):
            errors.seek(0)
            told = (errors.read() or out).decode(errors="replace").strip()
            raise RuntimeError(f"{' '.join(program.command)} ended with {process.returncode}: {told[-500:]}")
    return elapsed, (usage.ru_utime + usage.ru_stime) * 1e9
