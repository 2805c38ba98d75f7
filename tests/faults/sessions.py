"""Every write and every sync of a whole session failing in turn: nested, parallel and async calls, and a run.

The disk of a case fails once or from some moment on, or the process dies there, also in the midst of a write.
Afterwards each ledger is sound, or ends in a torn line; a ledger that has its end has an outcome for each call; nothing
acknowledged is missing; and on a disk that works, recovery ends what was left, and every ledger is sound and whole.
"""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest import mock

import attrs

from deedbook.charter.settings import CheckpointSettings
from deedbook.continuation.resume import has_open_run
from deedbook.format.errors import DeedbookError, Err
from deedbook.format.files import Folder
from deedbook.format.reader import list_sessions, read
from deedbook.format.release import VERSION
from deedbook.kernel import Kernel
from deedbook.ledger.chain import Chain
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook.maintenance.identity import Identity
from deedbook.maintenance.log_presence import LogWatch
from deedbook.plugins.features import Features
from deedbook.plugins.plugins import discover
from deedbook.workspace.workspace import load_workspace
from deedbook_audit.verification.leaves import compare_leaves
from deedbook_audit.verification.log import read_log
from deedbook_audit.verify import verify_file
from deedbook_inspect.upkeep import close_session
from deedbook_log.checkpoints.operations import LogOperations
from deedbook_testing.lab import Lab

CALLS: Final = ("write", "fsync", "fdatasync")
SPAN: Final = 16
"""How many digits a span has."""
SECONDS: Final = 60.0
"""How long a handler of these sessions waits for its own threads."""


@attrs.frozen
class Fault:
    """A way of failing: *error* is raised by the call, after *half* of what it should write was written.

    Without an *error* a write is short and succeeds. *lasting*: every later call fails as well, and what was written
    cannot be cut back.
    """

    name: str
    error: int | None
    half: bool = False
    lasting: bool = False

    def __str__(self) -> str:
        return self.name


FAULTS: Final = (
    Fault("EIO once", errno.EIO),
    Fault("ENOSPC once", errno.ENOSPC, half=True),
    Fault("short once", None, half=True),
    Fault("EIO for good", errno.EIO, half=True, lasting=True),
    Fault("ENOSPC for good", errno.ENOSPC, lasting=True),
    Fault("short for good", None, half=True, lasting=True),
)


def _settings(kernel: Kernel) -> CheckpointSettings:
    return CheckpointSettings.read(kernel.active_charter.charter.document.get("checkpoints", {}), kernel.site.root)


class Disk:
    """The `os` of modules that write: the call number *at* of `CALLS` fails as *fault* says; ``None``: none does."""

    def __init__(self, fault: Fault | None = None, at: int = 0) -> None:
        self.calls = 0
        self._fault, self._at = fault, at
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name in CALLS:
            return lambda *args: self._call(name, lambda: real(*args), args)
        if name == "ftruncate" and self._fault and self._fault.lasting:
            return lambda *args: self._cut(lambda: real(*args))
        return real

    def _call(self, name: str, go: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        with self._lock:
            self.calls += 1
            number = self.calls
        fault = self._fault
        if fault is None or number < self._at or (number > self._at and not fault.lasting):
            return go()
        if fault.error is None and name != "write":
            return go()
        if fault.error is None and number > self._at:
            return 0  # and nothing is written
        if name == "write" and fault.half:
            done = os.write(args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
            if fault.error is None:
                return done
        assert fault.error
        raise OSError(fault.error, os.strerror(fault.error))

    def _cut(self, go: Callable[[], Any]) -> Any:
        if self.calls >= self._at:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return go()


Note: TypeAlias = Callable[[list[str]], object]
"""Called with the spans of events whose append returned."""


@contextmanager
def on(disk: Disk, note: Note) -> Iterator[None]:
    """Let the kernel write to *disk*, and *note* what is acknowledged."""
    with ExitStack() as patched:
        for module in ("ledger.journal", "format.tail", "format.files", "ledger.ledger", "ledger.chain"):
            patched.enter_context(mock.patch(f"deedbook.{module}.os", disk))
        for maker in (Ledger.create, Ledger.reopen, WorkspaceLedger.open):
            defaults = maker.__func__.__kwdefaults__  # type: ignore[attr-defined]
            patched.enter_context(mock.patch.dict(defaults, fdatasync=disk.fdatasync))
        begins = Kernel.session.__kwdefaults__
        patched.enter_context(mock.patch.dict(begins, fdatasync=disk.fdatasync))
        for writer in (Chain, WorkspaceLedger):
            patched.enter_context(mock.patch.object(writer, "append", _noting(writer.append, note)))
        yield


def _noting(append: Callable[..., int], note: Note) -> Callable[..., int]:
    def noting(self: Chain, entries: Any, **how: Any) -> int:
        made = entries
        if callable(entries):  # the ledger asks for them under its lock
            made = []

            def make() -> Any:
                made.extend(entries())
                return made

            last = append(self, make, **how)
        else:
            last = append(self, entries, **how)
        note([entry.span for entry in made])
        return last

    return noting


class Death(Disk):
    """The process dies at the call number *at*: before it, or after *left* was done of a write.

    *left*: ``nothing``, ``half`` of the bytes, or ``zeros`` in their place, which is what a loss of power may leave.
    """

    def __init__(self, left: str, at: int) -> None:
        super().__init__(None, at)
        self._left = left

    def _call(self, name: str, go: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        with self._lock:
            self.calls += 1
            if self.calls < self._at:
                return go()
            if name == "write" and self._left != "nothing":
                data = bytes(args[1])
                os.write(args[0], data[: len(data) // 2] if self._left == "half" else bytes(len(data)))
            os._exit(DIED)


LEFT: Final = ("nothing", "half", "zeros")
DIED: Final = 9
"""The exit status of a process that died at its call."""
ENDED: Final = 7
"""The exit status of a process that ended well before its call."""
BROKEN: Final = 1
"""The exit status of a process that did neither."""


# --- the sessions ---------------------------------------------------------------------------------------------------


def workspace(path: Path, durability: str) -> Lab:
    """Make a workspace whose abilities call each other in turn, on threads and in coroutines."""
    lab = Lab(path)
    lab.settings(seal=["tool.result/result"], profiles={"lab": {"durability": durability}})
    lab.tool("read", lambda args, ctx: {"n": 1}, effects="read")
    lab.tool("act", lambda args, ctx: {"n": 1}, effects="write")
    lab.tool("nested", lambda args, ctx: [ctx.call("act", {}), ctx.call("read", {})], uses=["act", "read"])
    lab.tool("parallel", _parallel, uses=["act"], effects="write")
    lab.tool("awaited", _awaited, uses=["act"], effects="write")
    lab.allow_irreversible()
    lab.tool("final", lambda args, ctx: None, effects="irreversible")
    lab.tool("gated", lambda args, ctx: None, tags=["approval-gate"])
    lab.hook("look", "PostToolUse", lambda call, result: result, match={"abilities": ["read"]})
    lab.model(lambda request, ctx: "hello")
    lab.role("lead")
    lab.flow("work", _work)
    lab.skill("go", allows="act")
    return lab


def _parallel(_args: Any, ctx: Any) -> int:
    """Make two calls on threads of their own; what they fail with is theirs."""

    def act() -> None:
        with suppress(Exception):
            ctx.call("act", {})

    threads = [threading.Thread(target=act) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return 2


async def _awaited(_args: Any, ctx: Any) -> int:
    return len(await asyncio.gather(*(ctx.acall("act", {}) for _ in range(2)), return_exceptions=True))


def _work(_args: Any, run: Any) -> dict[str, str]:
    run.agent("lead").complete({"messages": [{"role": "user", "content": "hello"}]})
    run.call("act", {})
    return {"reply": "done"}


def live(kernel: Kernel) -> list[str]:
    """Begin a session, call everything, run, and end it and the *kernel*; return the calls that gave a result."""
    given: list[str] = []
    with kernel, kernel.session("open") as session:
        for name in ("read", "nested", "parallel", "gated", "final"):
            given += [] if isinstance(session.call(name, {}), Err) else [name]
        asyncio.run(_together(session, given))
        given += [] if isinstance(session.run("go"), Err) else ["work"]
    return given


async def _together(session: Any, given: list[str]) -> None:
    async def call(name: str) -> None:
        given.extend([] if isinstance(await session.acall(name, {}), Err) else [name])

    await asyncio.gather(call("awaited"), call("act"))


# --- what they come to ----------------------------------------------------------------------------------------------


class Cases:
    """The cases of one *durability*, in a workspace under *path*; each begins with the workspace as it was made.

    With a *log* checkpoints cover the sessions when they end, and irreversible calls before they begin.

    What is bound is shared by all of them: to read and bind a workspace takes longer than to use it.
    """

    def __init__(self, path: Path, durability: str, *, log: bool = False) -> None:
        self._lab = workspace(path / "workspace", durability)
        self._log = log
        self._first = self._lab.kernel()
        if log:
            first = self._first
            LogOperations(first.state, first.ledger, _settings(first)).rotate_key(lost=False)
        self._made = path / "made"
        shutil.copytree(self._lab.state, self._made)
        disk = Disk()
        with on(disk, list):
            given = live(self._open())
        assert sorted(given) == ["act", "awaited", "final", "nested", "parallel", "read", "work"], given
        self.calls = disk.calls

    def _open(self) -> Kernel:
        """Open the workspace again: everything that writes is new."""
        first = self._first
        with ExitStack() as held:
            state = held.enter_context(Folder.at(first.site.state))
            ledger = WorkspaceLedger.open(state, workspace=first.site.identity, kernel=VERSION, sealer=first.sealer)
            held.callback(ledger.close)
            return attrs.evolve(
                first,
                state=state,
                ledger=ledger,
                identity=Identity(
                    ledger, state, kernel=VERSION, charter=first.active_charter.charter.digest, warm=True
                ),
                log=LogWatch(state, ledger, _settings(first)),
                features=Features(discover()),
                resources=held.pop_all(),
            )

    def check(self, fault: Fault, at: int) -> str:
        """Try one case; return what the session's caller was told, ``""`` where nobody noticed."""
        lab, acknowledged = self._lab, list[str]()
        shutil.rmtree(lab.state)
        shutil.copytree(self._made, lab.state)
        told = ""
        with on(Disk(fault, at), acknowledged.extend):
            try:
                live(self._open())
            except DeedbookError as problem:
                told = str(problem)
        self._recovers(f"{fault} at call {at}", acknowledged)
        return told

    def dies(self, left: str, at: int) -> bool:
        """Let a process die, see what stands of it, and return whether it died.

        The log writes when it has time for it, so a run may end before its call number *at*. It then has to end well.
        """
        shutil.rmtree(self._lab.state)
        shutil.copytree(self._made, self._lab.state)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = BROKEN
            try:
                death = Death(left, at)
                with on(death, lambda spans: os.write(writing, "".join(spans).encode())):
                    live(self._open())
                code = ENDED if death.calls < at else BROKEN
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as told:
            spans = told.read()
        _, status = os.waitpid(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        assert ended == DIED or (ended == ENDED and self._log)
        acknowledged = [spans[start : start + SPAN] for start in range(0, len(spans), SPAN)]
        self._recovers(f"death at call {at}, {left} written", acknowledged)
        return ended == DIED

    def _recovers(self, case: str, acknowledged: list[str]) -> None:
        """Check that nothing is broken, that recovery ends what was left, and that nothing acknowledged is missing."""
        lab = self._lab
        for place in _ledgers(lab):
            report = verify_file(place, schemas=lab.schemas)
            assert not _failures(report), f"{case}: {_failures(report)}"
        with self._open() as kernel:
            recovered = kernel.recover()
            assert not recovered.refused, f"{case}: {recovered.refused}"
            assert not kernel.recover(), f"{case}: the second recovery finds more"
        self._give_up()
        for place in _ledgers(lab):
            report = verify_file(place, schemas=lab.schemas)
            assert report.sound, f"{case}: {list(report.lines())}"
            assert report.state != "open", f"{case}: {place} has no end after recovery"
        if log := read_log(lab.state):
            assert not log.findings.part().failures, f"{case}: {log.findings.part().failures}"
            assert not (wrong := list(compare_leaves(log, lab.state))), f"{case}: {wrong}"
        there = {event.span for place in _ledgers(lab) for event in read(place)}
        missing = [span for span in acknowledged if span not in there]
        assert not missing, f"{case}: {len(missing)} acknowledged events are missing"

    def _give_up(self) -> None:
        """End the sessions that recovery leaves because their runs can be resumed."""
        with Folder.at(self._lab.state) as state:
            left = [each.id for each in list_sessions(state) if each.state != "ended"]
        for session in left:
            assert has_open_run(list(read(self._lab.ledger(session)))), f"{session} has no run, and no end"
            close_session(load_workspace(self._lab.path), session)

    def close(self) -> None:
        """Take back what was offered."""
        self._lab.damaged = True  # the last case may be any
        self._lab.close()


def _ledgers(lab: Lab) -> list[Path]:
    return [place for place in sorted(lab.state.glob("*/**/.events.jsonl")) if place.stat().st_size]


def _failures(report: Any) -> list[str]:
    return [str(each) for part in (report.bytes, report.structure) for each in part.failures]


def deaths(path: Path, durability: str, *, every: int = 1, log: bool = False) -> int:
    """Let a process die at every call, or at every so manieth, in each way; return how many died."""
    cases = Cases(path, durability, log=log)
    count = 0
    try:
        for number, left in enumerate(LEFT):
            for at in range(1 + number % every, cases.calls + 1, every):
                count += cases.dies(left, at)
    finally:
        cases.close()
    return count


def sweep(path: Path, durability: str, *, every: int = 1, log: bool = False) -> dict[str, int]:
    """Try each fault at every call, or at every so manieth; return how many cases were tried, and how many told."""
    cases = Cases(path, durability, log=log)
    counts = {"cases": 0, "told": 0}
    try:
        for number, fault in enumerate(FAULTS):
            for at in range(1 + number % every, cases.calls + 1, every):
                counts["told"] += bool(cases.check(fault, at))
                counts["cases"] += 1
    finally:
        cases.close()
    return counts
