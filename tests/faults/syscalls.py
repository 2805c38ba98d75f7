"""Every system call of a writer failing in turn, or its process dying at it: strace makes the calls fail, for real.

A process that has everything loaded forks a child for each case, which waits until strace holds it. What the child was
told is acknowledged stands in memory that both see, so that the harness makes no calls of its own that could fail.
"""

import mmap
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import attrs

from .writers import FIRST, NAME, Style, again, begin, checked, logged, note, shared, signed

CALLS = (
    "openat", "write", "pread64", "newfstatat", "fstat", "ftruncate", "fsync", "fdatasync", "mkdirat", "mkdir",
    "rename", "renameat", "renameat2", "unlink", "unlinkat", "link", "linkat", "flock", "getdents64", "lseek", "fchmod",
)  # fmt: skip
"""What a writer asks the system for, beside time, memory and threads."""
FAULTS = ("EIO", "ENOSPC", "EINTR", "EACCES", "KILL")
"""How a call fails; at ``KILL`` the process dies in front of it. What the system never answers is tried, too."""
CLEAR = ("LedgerError", "FileRefused", "SignatureError", "OSError with its file")
"""Errors that say what happened to which file."""
_CALL = re.compile(r"^\d+ +(\w+)\(")
_ACKNOWLEDGED, _WHY = 1024, 512


@attrs.frozen
class Case:
    """One call failing: the *nth* of its name."""

    call: str
    nth: int
    fault: str

    def __str__(self) -> str:
        return f"{self.call} {self.nth}: {self.fault}"


@attrs.frozen
class Outcome:
    """What a life came to: the texts acknowledged, and what it ended with (``""``: nothing was noticed)."""

    acknowledged: list[str]
    ended: str


def life(place: Path, acknowledged: "_Acknowledged") -> None:
    """Create, append, seal, sync, close, tear, reopen, recover, append: a session, and a workspace that has a log."""
    os.environ["XDG_CONFIG_HOME"] = str(place / "config")
    sync = {"durability": "always"}
    with closing(begin(place / "session", **sync)) as ledger, closing(shared(place / "state", **sync)) as home:
        for text in ("one", "two" + "x" * 1_100_000):
            ledger.append([note(ledger, text)])
            acknowledged.add("s." + text[:3])
            home.append([note(home, text)])
            acknowledged.add("w." + text[:3])
        acknowledged.add(f"c.{signed(home, place / 'state')}")
    for torn in (place / "session", place / "state" / "workspace"):
        with suppress(OSError), (torn / NAME).open("ab") as file:  # our own calls may fail as well
            file.write(b"torn")
    with closing(again(place / "session", **sync)) as ledger, closing(shared(place / "state", **sync)) as home:
        for text in ("three", "four"):
            ledger.append([note(ledger, text)])
            acknowledged.add("s." + text[:3])
            home.append([note(home, text)])
            acknowledged.add("w." + text[:3])
        acknowledged.add(f"c.{signed(home, place / 'state')}")


class _Acknowledged:
    """Shared memory in which a child says what was acknowledged, and what it ended with."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _ACKNOWLEDGED + _WHY)
        self._end = 0

    def add(self, text: str) -> None:
        raw = text.encode() + b"\n"
        self._map[self._end : self._end + len(raw)] = raw
        self._end += len(raw)

    def end(self, why: str) -> None:
        raw = why.encode()[:_WHY]
        self._map[_ACKNOWLEDGED : _ACKNOWLEDGED + len(raw)] = raw

    def outcome(self) -> Outcome:
        texts = self._map[:_ACKNOWLEDGED].rstrip(b"\0").decode().split()
        return Outcome(texts, self._map[_ACKNOWLEDGED:].rstrip(b"\0").decode())


def run(place: Path, trace: Path, case: Case | None = None) -> Outcome:
    """Live once under strace, with one call failing; *trace* is then what was called."""
    said = _Acknowledged()
    child = os.fork()
    if not child:
        _child(place, said)
    inject = []
    if case:
        how = "signal=KILL" if case.fault == "KILL" else f"error={case.fault}"
        inject = ["-e", f"inject={case.call}:{how}:when={case.nth}"]
    command = ["strace", "-f", "-o", trace, "-s", "1", "-e", f"trace={','.join(CALLS)}", *inject, "-p", str(child)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr
        told = tracer.stderr.readline()
        if b"attached" not in told:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise OSError(told.decode())
        os.kill(child, signal.SIGUSR1)
        os.waitpid(child, 0)
        tracer.stderr.read()
    return said.outcome()


def _child(place: Path, said: _Acknowledged) -> None:
    """Wait for the signal, live, and say what it came to; never returns."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        signal.sigwait({signal.SIGUSR1})
        life(place, said)
    except BaseException as problem:  # every end is told
        named = isinstance(problem, OSError) and problem.filename is not None
        said.end(f"{'OSError with its file' if named else type(problem).__name__}: {problem}")
    finally:
        os._exit(0)


def available() -> bool:
    """Say whether strace is installed and may hold a process here."""
    strace = shutil.which("strace")
    return (
        strace is not None and not subprocess.run([strace, "-qq", "true"], capture_output=True, check=False).returncode
    )


def cases(work: Path) -> Iterator[Case]:
    """Yield a case for every call that a life makes, and every way of failing."""
    trace = work / "trace"
    place = work / "whole"
    life(place, _Acknowledged())  # whatever is imported late is there now
    shutil.rmtree(place)
    outcome = run(place, trace)
    assert outcome.ended == "", outcome.ended
    assert len(outcome.acknowledged) == 10, outcome
    shutil.rmtree(place)
    threads: dict[str, dict[str, int]] = {}
    for line in trace.read_text().splitlines():
        if found := _CALL.match(line):
            thread = threads.setdefault(line.split()[0], {})
            thread[found[1]] = thread.get(found[1], 0) + 1
    most = {name: max(each.get(name, 0) for each in threads.values()) for name in CALLS}
    for name, count in most.items():
        for nth in range(1, count + 1):
            for fault in FAULTS:
                yield Case(name, nth, fault)


def check(work: Path, case: Case) -> Outcome:
    """Let one call fail; then the ledgers are sound on a disk that works, hold what was acknowledged, and go on."""
    place = work / f"{case.call}-{case.nth}-{case.fault}"
    place.mkdir()
    outcome = run(place, work / "trace", case)
    for folder, style in ((place / "session", Style()), (place / "state", Style("workspace"))):
        mark = style.kind[0]
        acknowledged = [text[2:] for text in outcome.acknowledged if text[0] == mark]
        if not acknowledged and not _begun(style.folder(folder)):
            continue
        with closing(style.open(folder)) as ledger:
            ledger.append([note(ledger, "last")], durable=True)
            if style.kind == "workspace":
                logged(folder, max((int(text[2:]) for text in outcome.acknowledged if text[0] == "c"), default=0))
                os.environ["XDG_CONFIG_HOME"] = str(place / "config")
                signed(ledger, folder)
        texts = [str(event["payload"].get("text"))[:3] for event in checked(style.folder(folder), FIRST[style.kind])]
        found = [text for text in texts if text in acknowledged]
        assert found == acknowledged, f"{case}: acknowledged {acknowledged}, found {texts}"
        assert "las" in texts, f"{case}: {texts}"
    assert not outcome.ended or outcome.ended.startswith(CLEAR), f"{case}: {outcome.ended}"
    shutil.rmtree(place)
    return outcome


def _begun(folder: Path) -> bool:
    with suppress(OSError):
        return (folder / NAME).stat().st_size > 0
    return False


def sweep(work: Path, *, every: int = 1) -> dict[str, int]:
    """Try every case, or every so manieth; return how many were noticed, survived and died, and how long it took."""
    every += every > 1 and every % len(FAULTS) == 0  # or the same fault would be tried each time
    counts = {"cases": 0, "told": 0, "unnoticed": 0, "died": 0}
    begun = time.monotonic()
    for number, case in enumerate(cases(work)):
        if number % every:
            continue
        outcome = check(work, case)
        counts["cases"] += 1
        counts["died" if case.fault == "KILL" else "told" if outcome.ended else "unnoticed"] += 1
    return counts | {"seconds": round(time.monotonic() - begun)}
