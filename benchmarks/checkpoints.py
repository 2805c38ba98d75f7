"""What checkpoints cost: nothing beside a call, the new lines when one is written, O(log n) in the log (T8)."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import WALL, Plan
from benchmarks.workspaces import ARGS, session
from deedbook.charter.settings import CheckpointSettings
from deedbook.format.canonical import encode
from deedbook.format.checkpoints import Frontier
from deedbook.format.events import Entry, label, new_id
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger, WorkspaceLedger
from deedbook_log.checkpoints.leaves import LEAF, Leaf
from deedbook_log.checkpoints.operations import LogOperations
from deedbook_log.checkpoints.trees import SessionTree

_MANY: Final = 100_000
_FEW: Final = 1_000
_GROWN: Final = 1_000


def run(plan: Plan) -> Iterator[Line]:
    """Measure calls with a log, checkpoints of logs of two sizes, and the reading of new lines."""
    yield from _calls(plan)
    yield from _irreversible(plan)
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        yield from _sizes(plan, Path(folder))
        yield from _reading(plan, Path(folder))


def _calls(plan: Plan) -> Iterator[Line]:
    with session() as plain, session(log=True) as logged:
        work = {"plain": lambda: plain.call("echo", ARGS), "logged": lambda: logged.call("echo", ARGS)}
        times = plan.take_turns(work)
    yield Measure(
        "governed call, its thread, with a log and a key: to without", "at most", 1.03, times.ratio("logged", "plain")
    )


def _irreversible(plan: Plan) -> Iterator[Line]:
    effects = {"durability": "boundary", "effects": "irreversible"}
    with session(**effects) as plain, session(**effects, log=True) as logged:
        work = {"plain": lambda: plain.call("echo", ARGS), "logged": lambda: logged.call("echo", ARGS)}
        times = plan.once_each(work, clock=WALL, rounds=plan.size(100, 2))
    yield Value("an irreversible call, a checkpoint before it: elapsed", times.micros("logged"), "µs")
    yield Value("an irreversible call, without a log: elapsed", times.micros("plain"), "µs")


def _sizes(plan: Plan, folder: Path) -> Iterator[Line]:
    """Compare checkpoints of a log of many leaves with those of a small one; each adds one session's leaf."""
    large, small = plan.size(_MANY, 200), plan.size(_FEW, 20)
    with closing(_log(folder / "many", large)) as many, closing(_log(folder / "few", small)) as few:
        times = plan.take_turns({"many": many.write, "few": few.write})
    what = f"a checkpoint at {large:,} leaves"
    yield Measure(f"{what}: to one at {small:,}", "at most", 1.3, times.ratio("many", "few"), stretch=1.1)
    yield Value(f"{what}, the workspace ledger's new lines read: CPU", times.micros("many"), "µs")


class _log:  # noqa: N801 - a fixture
    """A workspace with a log of so many leaves, all of one session that grew by a line each time."""

    def __init__(self, state: Path, leaves: int) -> None:
        self.state = Folder.at(state, create=True)
        self.ledger = WorkspaceLedger.open(self.state, workspace="bench", durability="os")
        office = LogOperations(self.state, self.ledger, CheckpointSettings(key=state / "log.key"))
        office.rotate_key(lost=False)
        self._fill(leaves)
        with office._open_writer() as (writer, _, _):
            self.writer = writer
        self.name = new_id()
        self.track = SessionTree(self.name)
        self.writer.follow(self.track)

    def _fill(self, leaves: int) -> None:
        tree, name = Frontier(), new_id()
        made = []
        for index in range(1, leaves):
            tree.push(bytes(32))
            leaf = Leaf.of(index, name, tree, "0" * 64)
            made.append(
                Entry(label(LEAF, "runtime", None), self.ledger.span(), self.ledger.root, encode(leaf.payload()))
            )
        self.ledger.append(made)

    def write(self) -> None:
        """Write a checkpoint of a session that has grown by a line."""
        self.track.tree.push(bytes(32))
        self.writer.write("asked", [self.track])

    def close(self) -> None:
        """Let go of it."""
        self.ledger.close()
        self.state.close()


def _reading(plan: Plan, folder: Path) -> Iterator[Line]:
    """Compare reading what was added to a long session with reading as much of a short one."""
    many, grown = plan.size(_MANY, 200), plan.size(_GROWN, 20)
    with Folder.at(folder, create=True) as state:
        long, short = _session(state, many), _session(state, grown)
        tracks = {}
        for name, ledger in (("long", long), ("short", short)):
            whole = SessionTree(ledger.session_id)
            whole.advance(state, durable=True)
            tracks[name] = whole.tree.size, whole.tree.peaks, whole.head
            _grow(ledger, grown)

        def read(name: str, ledger: Ledger) -> None:
            size, peaks, head = tracks[name]
            SessionTree.resume(state, ledger.session_id, Frontier(size, peaks), head).advance(state, durable=True)

        times = plan.take_turns({"long": lambda: read("long", long), "short": lambda: read("short", short)})
        long.close()
        short.close()
    yield Measure(
        f"{grown:,} new lines of a session of {many:,}: to those of one of {grown:,}",
        "at most", 1.2, times.ratio("long", "short"), stretch=1.05,
    )  # fmt: skip
    yield Value("a new line of a session, when a checkpoint is written: CPU", times.micros("long", grown), "µs")


def _session(state: Folder, lines: int) -> Ledger:
    name = new_id()
    ledger = Ledger.create(state.sub(f"sessions/{name}", create=True), name, new_id(), durability="os")
    ledger.append([Entry(label("session.start", "runtime", None), ledger.span(), None, b"{}")])
    _grow(ledger, lines - 1)
    return ledger


def _grow(ledger: Ledger, lines: int) -> None:
    ledger.append(
        [
            Entry(label("user.message", "user", "ada"), ledger.span(), ledger.root, b'{"text":"hello"}')
            for _ in range(lines)
        ]
    )
