"""Compares every leaf of a log with the file of its ledger."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from deedbook.format.errors import FileRefused

from .log import Leaf, Log
from .trees import LedgerState, compute_states
from .verdict import Contradiction


def compare_leaves(log: Log, state: Path, sessions: Collection[str] | None = None) -> Iterator[Contradiction]:
    """Yield the first contradiction of each file in a *state* folder with leaves of *log*; of *sessions* alone."""
    for name, leaves in log.leaves.items():
        if sessions is not None and name not in sessions:
            continue
        own = name == log.identity
        file = state / "workspace" / ".events.jsonl" if own else state / "sessions" / name / ".events.jsonl"
        try:
            lines, found = compute_states(file, [leaf.size for leaf in leaves])
        except (OSError, FileRefused):  # a link or a pipe is no ledger
            lines, found = 0, {}
        yield from _compare_ledger("the workspace ledger" if own else f"session {name}", leaves, lines, found)


def _compare_ledger(
    name: str, leaves: Sequence[Leaf], lines: int, found: dict[int, LedgerState]
) -> Iterator[Contradiction]:
    good = 0
    for leaf in leaves:
        state = found.get(leaf.size)
        if state is None:
            why = f"{name} has {lines} events, and a checkpoint covers {leaf.size}"
            yield Contradiction("rolled_back", name, None, why)
            return
        if state != (leaf.head, leaf.root, leaf.peaks):
            after = f"after event {good - 1}, " if good else ""
            why = f"{after}its first {leaf.size} events are not those that a checkpoint covers: written anew"
            yield Contradiction("broken", name, leaf.size - 1, why)
            return
        good = leaf.size
