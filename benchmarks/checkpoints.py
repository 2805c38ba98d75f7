"""What checkpoints cost: nothing beside a call, the new lines when one is written, O(log n) in the log (T8)."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.measures import Line, Measure, Note
from benchmarks.rounds import CPU, WALL, once_each, take_turns
from benchmarks.workspaces import ARGS, session
from deedbook.canonical import encode
from deedbook.checkpoints.asked import Office
from deedbook.checkpoints.leaves import LEAF, Leaf
from deedbook.checkpoints.settings import Settings
from deedbook.checkpoints.trees import Track
from deedbook.events import Entry, label, new_id
from deedbook.files import Folder
from deedbook.ledger import Ledger, WorkspaceLedger
from deedbook.proofs import Frontier

_MANY: Final = 100_000
_FEW: Final = 1_000
_GROWN: Final = 1_000


def run() -> Iterator[Line]:
    """Measure all of it."""
    yield from _calls()
    yield from _irreversible()
    with tempfile.TemporaryDirectory(prefix="deedbook-bench-") as folder:
        yield from _sizes(Path(folder))
        yield from _reading(Path(folder))


def _calls() -> Iterator[Line]:
    with session() as plain, session(log=True) as logged:
        work = {"plain": lambda: plain.call("echo", ARGS), "logged": lambda: logged.call("echo", ARGS)}
        times = take_turns(work, clock=CPU)
    yield Measure(
        "governed call, its thread, with a log and a key: to without", "at most", 1.03, times.ratio("logged", "plain")
    )


def _irreversible() -> Iterator[Line]:
    effects = {"durability": "boundary", "effects": "irreversible"}
    with session(**effects) as plain, session(**effects, log=True) as logged:
        work = {"plain": lambda: plain.call("echo", ARGS), "logged": lambda: logged.call("echo", ARGS)}
        times = once_each(work, clock=WALL, rounds=100)
    yield Note(
        f"an irreversible call waits {times.micros('logged'):.0f} µs with a checkpoint, "
        f"{times.micros('plain'):.0f} µs without one, here and now"
    )


def _sizes(folder: Path) -> Iterator[Line]:
    """Compare checkpoints of a log of many leaves with those of a small one; each adds one session's leaf."""
    with closing(_log(folder / "many", _MANY)) as many, closing(_log(folder / "few", _FEW)) as few:
        times = take_turns({"many": many.write, "few": few.write}, clock=CPU)
    yield Measure(
        f"a checkpoint at {_MANY:,} leaves: to one at {_FEW:,}", "at most", 1.3, times.ratio("many", "few"), stretch=1.1
    )
    yield Note(f"one takes {times.micros('many'):.0f} µs of the processor, the workspace ledger's new lines read")


class _log:  # noqa: N801 - a fixture
    """A workspace with a log of so many leaves, all of one session that grew by a line each time."""

    def __init__(self, state: Path, leaves: int) -> None:
        self.state = Folder.at(state, create=True)
        self.ledger = WorkspaceLedger.open(self.state, workspace="bench", durability="os")
        office = Office(self.state, self.ledger, Settings(key=state / "log.key"))
        office.rotate(lost=False)
        self._fill(leaves)
        with office._writer() as (writer, _, _):
            self.writer = writer
        self.name = new_id()
        self.track = Track(self.name)
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


def _reading(folder: Path) -> Iterator[Line]:
    """Compare reading what was added to a long session with reading as much of a short one."""
    with Folder.at(folder, create=True) as state:
        long, short = _session(state, _MANY), _session(state, _GROWN)
        tracks = {}
        for name, ledger in (("long", long), ("short", short)):
            whole = Track(ledger.session_id)
            whole.advance(state, durable=True)
            tracks[name] = whole.tree.size, whole.tree.peaks, whole.head
            _grow(ledger, _GROWN)

        def read(name: str, ledger: Ledger) -> None:
            size, peaks, head = tracks[name]
            Track.after(state, ledger.session_id, Frontier(size, peaks), head).advance(state, durable=True)

        times = take_turns({"long": lambda: read("long", long), "short": lambda: read("short", short)}, clock=CPU)
        long.close()
        short.close()
    yield Measure(
        f"{_GROWN:,} new lines of a session of {_MANY:,}: to those of one of {_GROWN:,}",
        "at most", 1.2, times.ratio("long", "short"), stretch=1.05,
    )  # fmt: skip
    yield Note(f"a new line of a session costs {times.micros('long') / _GROWN:.1f} µs when a checkpoint is written")


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
