"""A ledger of a million events: verifying it (T6), appending to it and opening it again (T7), proofs about it (T8).

It is made once, by calls through the door, and kept in the user's cache folder (``XDG_CACHE_HOME``).
"""

import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.measures import Line, Measure, Note, Value
from benchmarks.processes import resident
from benchmarks.rounds import WALL, Plan, Work
from benchmarks.verifying import speeds
from benchmarks.workspaces import ARGS, ledger_file, session
from deedbook.format.checkpoints import Frontier
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.ledger.ledger import Ledger
from deedbook_audit.transparency.merkle import MerkleTree, includes, leaf_hash

_EVENTS: Final = 1_000_000
_FEW: Final = 1_000
_VERIFY: Final = "from deedbook.cli.command import main; main()"
_APPEND: Final = """
import sys
from contextlib import closing
from pathlib import Path
sys.path.insert(0, {root!r})
from benchmarks.million import entry
from deedbook.format.files import Folder
from deedbook.ledger.ledger import Ledger
with closing(Ledger.reopen(Folder.at({folder!r}), durability="os")) as ledger:
    for _ in range({count}):
        ledger.append([entry(ledger)])
"""


def run(plan: Plan) -> Iterator[Line]:
    """Measure verification, appending, opening again, and proofs."""
    events, few = plan.size(_EVENTS, 2_000), plan.size(_FEW, 200)
    with ExitStack() as held:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deedbook-benchmarks"
        folder = Path(held.enter_context(tempfile.TemporaryDirectory())) if plan.quick else cache
        large, small = made(folder, events), made(folder, few)
        size = (large / LEDGER_FILE).stat().st_size
        yield Note(f"a ledger of {events:,} events, {size >> 10:,} KiB, made by calls through the door, all alike")
        yield from speeds(plan, large / LEDGER_FILE, rounds=3)
        yield from _jobs(plan, large / LEDGER_FILE)
        yield from _appending(plan, large, small)
        yield from _opening(plan, large, small)
        yield from _proofs(plan, large / LEDGER_FILE, few)


def made(folder: Path, events: int) -> Path:
    """Return the folder of a ledger of so many events, below *folder*; it is made if it is not there yet."""
    cache = folder / f"ledger-{events}"
    if (cache / LEDGER_FILE).exists():
        return cache
    print(f"  making a ledger of {events:,} events in {cache} …", file=sys.stderr, flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with session(policy=False) as calls:
        while calls.ledger.size < events:
            calls.call("echo", ARGS)
        shutil.copyfile(ledger_file(calls), cache / "draft")
    with (cache / "draft").open("rb") as lines:
        kept = sum(len(lines.readline()) for _ in range(events))
    os.truncate(cache / "draft", kept)
    (cache / "draft").rename(cache / LEDGER_FILE)
    return cache


def entry(ledger: Ledger) -> Entry:
    """Make an event such as a user's message."""
    return Entry(label("user.message", "user", "ada"), ledger.span(), ledger.root, b'{"text":"hello"}')


# --- verifying (T6) ---------------------------------------------------------------------------------------------------


def _jobs(plan: Plan, file: Path) -> Iterator[Line]:
    """Compare two processes with one, by elapsed time: only on a machine that does nothing else this says much."""

    def with_jobs(count: int) -> Work:
        command = [sys.executable, "-c", _VERIFY, "verify", file, "--jobs", str(count)]
        return lambda: subprocess.run(command, check=True, capture_output=True)

    times = plan.once_each({"one": with_jobs(1), "two": with_jobs(2)}, clock=WALL, rounds=plan.size(3, 1))
    busy = os.getloadavg()[0]
    yield Measure("verify --jobs 2: speed, --jobs 1 = 1, elapsed", "at least", 1.7, times.ratio("one", "two"))
    yield Value("the load average of the machine after that", busy, "")


# --- appending and opening (T7) ---------------------------------------------------------------------------------------


@contextmanager
def _untouched(folder: Path) -> Iterator[Path]:
    """Give the folder, and cut off afterwards what was appended to its ledger."""
    size = (folder / LEDGER_FILE).stat().st_size
    try:
        yield folder
    finally:
        os.truncate(folder / LEDGER_FILE, size)
        for torn in folder.glob(".torn-*"):
            torn.unlink()


def _opened(folder: Path) -> Ledger:
    return Ledger.reopen(Folder.at(folder), durability="os")


def _appending(plan: Plan, large: Path, small: Path) -> Iterator[Line]:
    with _untouched(large), _untouched(small), closing(_opened(large)) as many, closing(_opened(small)) as few:
        works: dict[str, Work] = {
            "many": lambda: many.append([entry(many)]),
            "few": lambda: few.append([entry(few)]),
        }
        times = plan.take_turns(works)
        yield Measure("append at 10^6 events: to one at 10^3", "at most", 1.1, times.ratio("many", "few"))
    grown = []
    for count in (plan.size(2_000, 20), plan.size(52_000, 70)):
        with _untouched(large):
            grown.append(resident(_APPEND.format(root=str(Path(__file__).parents[1]), folder=str(large), count=count)))
    growth = (grown[1] - grown[0]) / 2**20
    yield Measure("append at 10^6 events: memory for 50,000 more", "at most", 1.0, growth, stretch=0.0, unit="MiB")


def _opening(plan: Plan, large: Path, small: Path) -> Iterator[Line]:
    def again(folder: Path, torn: bytes) -> Callable[[], None]:
        def work() -> None:
            if torn:
                with (folder / LEDGER_FILE).open("ab") as file:
                    file.write(torn)
            _opened(folder).close()

        return work

    with _untouched(large), _untouched(small):
        works: dict[str, Work] = {"many": again(large, b""), "few": again(small, b"")}
        times = plan.once_each(works, rounds=plan.size(200, 2))
        yield Measure("opening 10^6 events again: to 10^3", "at most", 1.25, times.ratio("many", "few"))
        yield Value("opening 10^6 events again: CPU", times.micros("many"), "µs")
        works = {"many": again(large, b'{"torn'), "few": again(small, b'{"torn')}
        times = plan.once_each(works, rounds=plan.size(50, 2))
        yield Measure("the same with a torn tail set aside: to 10^3", "at most", 1.25, times.ratio("many", "few"))


# --- proofs (T8) ------------------------------------------------------------------------------------------------------


def _proofs(plan: Plan, file: Path, few: int) -> Iterator[Line]:
    hashes = _heads(file)
    leaves = [leaf_hash(raw) for raw in hashes]
    trees = {"few": MerkleTree(leaves[:few]), "many": MerkleTree(leaves)}
    yield from _adding(plan, hashes[:100_000])
    steps = {name: _Steps(tree, leaves) for name, tree in trees.items()}
    longest = max(len(trees["many"].inclusion(index)) for index in range(0, len(leaves), 997))
    bound = math.ceil(math.log2(len(leaves)))
    yield Measure(f"inclusion proof at 10^6: hashes, of which log2 asks {bound}", "at most", bound, longest, unit="")
    times = plan.take_turns({"many": steps["many"].prove, "few": steps["few"].prove})
    yield Measure("inclusion proof at 10^6: to one at 10^3", "at most", 4, times.ratio("many", "few"))
    yield Value("inclusion proof at 10^6: CPU", times.micros("many"), "µs")
    times = plan.take_turns({"many": steps["many"].check, "few": steps["few"].check})
    yield Measure("checking it: to one at 10^3", "at most", 4, times.ratio("many", "few"))
    times = plan.take_turns({"many": steps["many"].consistency, "few": steps["few"].consistency})
    yield Measure("consistency proof at 10^6: to one at 10^3", "at most", 4, times.ratio("many", "few"))


def _heads(file: Path) -> list[bytes]:
    """Return the raw envelope hash of each line."""
    mark, found = b',"envelope_hash":"', []
    with file.open("rb") as lines:
        for line in lines:
            cut = line.find(mark, 390) + len(mark)
            found.append(bytes.fromhex(line[cut : cut + 64].decode()))
    return found


def _adding(plan: Plan, hashes: list[bytes]) -> Iterator[Line]:
    """Compare the tree with a linear chain over the same hashes, which is hashed once an event."""

    def linked(head: bytes, raw: bytes) -> bytes:
        return sha256(head + raw).digest()

    def chain() -> None:
        head = b"\0" * 32
        for raw in hashes:
            head = linked(head, raw)

    def tree() -> None:
        MerkleTree(map(leaf_hash, hashes))

    def frontier() -> None:
        made = Frontier()
        for raw in hashes:
            made.push(leaf_hash(raw))

    times = plan.once_each({"chain": chain, "tree": tree, "frontier": frontier}, rounds=plan.size(9, 1))
    yield Measure("adding to the tree that proves: to a linear chain", "at most", 2.5, times.ratio("tree", "chain"))
    yield Measure("adding to the peaks that sign: to a linear chain", "at most", 2.5, times.ratio("frontier", "chain"))


class _Steps:
    """Proofs from one tree, each of the next leaf."""

    def __init__(self, tree: MerkleTree, leaves: list[bytes]) -> None:
        self._tree, self._leaves = tree, leaves
        self._index = 0
        self._root = tree.root()
        self._path = tree.inclusion(tree.size // 3)

    def _next(self) -> int:
        self._index = (self._index + 7919) % self._tree.size
        return self._index

    def prove(self) -> None:
        """Make the proof of a leaf."""
        self._tree.inclusion(self._next())

    def check(self) -> None:
        """Check the proof of one leaf."""
        index = self._tree.size // 3
        assert includes(self._root, self._tree.size, index, self._leaves[index], self._path)

    def consistency(self) -> None:
        """Make the proof that a smaller tree is the beginning of this one."""
        self._tree.consistency(self._next() + 1)
