"""The log of a workspace: a fold of the last lines of its ledger, kept up to date by reading new lines.

It begins at the newest checkpoint, which is searched from the end of the file, so that no part of the ledger is read
twice. Lines that do not match what was signed are an error.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from deedbook.format.canonical import decode
from deedbook.format.checkpoints import CHECKPOINT, Frontier, SignedCheckpoint
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import first_workspace_hash, split_line
from deedbook.ledger.ledger import WorkspaceLedger

from .leaves import KEY, LEAF, Leaf
from .trees import LedgerTree

_OURS: Final = b'"event_type":"ledger.'
_HEADER: Final = 512
"""The first bytes of a line that hold its type."""


class WorkspaceLog:
    """The log in a workspace's *ledger*: its *tree*, the ledger's *own* tree, the newest checkpoint, the key.

    *signer* is the verifier key of the newest ``ledger.key`` that was read; without one, the newest checkpoint names
    the signer. *leaves* holds the last leaf of each session in it, or with *every* of all sessions. Made by
    `read_recent` or `read_whole`; `catch_up` reads on, as far as the ledger's writer knows its file.
    """

    def __init__(
        self, ledger: WorkspaceLedger, own: LedgerTree, newest: SignedCheckpoint | None, *, every: bool
    ) -> None:
        self.ledger, self.own, self.newest = ledger, own, newest
        self.tree = newest.tree if newest else Frontier()
        self.signer = ""
        self.leaves: dict[str, Leaf | None] = {}
        self._every = every
        self._begin = 0
        self._moves = ledger.moves

    @classmethod
    def read_whole(cls, ledger: WorkspaceLedger) -> Self:
        """Read the ledger from its first line, and keep the last leaf of every session. Raises `LedgerError`."""
        log = cls(ledger, _empty_tree(ledger), None, every=True)
        log.catch_up()
        return log

    @classmethod
    def read_recent(cls, ledger: WorkspaceLedger) -> Self:
        """Read the ledger from its newest checkpoint; the whole ledger if it has none. Raises `LedgerError`."""
        found: SignedCheckpoint | None = None
        after, own = 0, None
        for offset, raw in ledger.backwards():
            kind, payload = _decode_line(raw, ledger.place)
            if kind == CHECKPOINT and not found:
                found, after = SignedCheckpoint.parse(payload, ledger.place), offset + len(raw)
            elif kind == LEAF and found and not own and payload.get("session_id") == ledger.session_id:
                own = Leaf.parse(payload, ledger.place)
            if own and split_line(raw, place=ledger.place).seq <= own.size:
                log = cls(ledger, LedgerTree(own.tree, own.head, offset), found, every=False)
                log._begin = after
                log.catch_up()
                return log
        log = cls(ledger, _empty_tree(ledger), None, every=False)
        log.catch_up()
        return log

    def catch_up(self) -> None:
        """Read the new lines of the ledger; raises `LedgerError` (``LEDGER_UNSOUND``) for lines that were changed."""
        own, place = self.own, self.ledger.place
        if self._moves != self.ledger.moves:
            self._moves, self._begin, own.end = self.ledger.moves, 0, self.ledger.end_of(own.tree.size)
        for raw in self.ledger.since(own.end):
            counts = own.end >= self._begin
            own.add(raw, place)
            if counts:
                self._apply(raw)

    def _apply(self, raw: bytes) -> None:
        kind, payload = _decode_line(raw, self.ledger.place)
        if kind == LEAF:
            self._apply_leaf(Leaf.parse(payload, self.ledger.place))
        elif kind == CHECKPOINT:
            self.newest = SignedCheckpoint.parse(payload, self.ledger.place)
            if (self.newest.size, self.newest.root) != (self.tree.size, self.tree.root.hex()):
                self._refuse(f"the checkpoint of {self.newest.size} leaves is not of the leaves before it")
        elif kind == KEY:
            self.signer = str(payload.get("key"))

    def _apply_leaf(self, leaf: Leaf) -> None:
        if leaf.index != self.tree.size:
            self._refuse(f"leaf {leaf.index} stands where leaf {self.tree.size} should")
        self.tree.push(leaf.hash)
        if self._every or leaf.session in self.leaves:
            self.leaves[leaf.session] = leaf

    def _refuse(self, why: str) -> None:
        raise LedgerError(fault("LEDGER_UNSOUND", f"{why}; verify the workspace", place=self.ledger.place))


def _decode_line(raw: bytes, place: str) -> tuple[str, Mapping[str, Any]]:
    """Return type and payload of a line of the log; empty ones for any other line."""
    if _OURS not in raw[:_HEADER]:
        return "", {}
    line = split_line(raw, place=place)
    return line.event_type, decode(line.payload) if line.event_type in (LEAF, CHECKPOINT, KEY) else {}


def _empty_tree(ledger: WorkspaceLedger) -> LedgerTree:
    return LedgerTree(Frontier(), first_workspace_hash(ledger.session_id), 0)
