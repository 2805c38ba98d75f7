"""Leaves of the log, parsed from payloads and written as such; pure."""

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from deedbook.format.canonical import encode
from deedbook.format.checkpoints import Frontier
from deedbook.format.errors import LedgerError, fault
from deedbook_audit.transparency.merkle import leaf_hash

LEAF: Final = "ledger.leaf"
KEY: Final = "ledger.key"


@attrs.frozen
class Leaf:
    """A leaf of the log: the ledger *session* had *size* lines, and the last had the hash *head*."""

    index: int
    session: str
    size: int
    head: str
    root: str
    peaks: tuple[str, ...]

    @classmethod
    def of(cls, index: int, session: str, tree: Frontier, head: str) -> Self:
        """Return the leaf of a ledger whose *tree* ends with the line of hash *head*."""
        return cls(index, session, tree.size, head, tree.root.hex(), encode_peaks(tree.peaks))

    @classmethod
    def parse(cls, told: Mapping[str, Any], place: str) -> Self:
        """Parse the payload of ``ledger.leaf``; raises `LedgerError` (``LEDGER_UNSOUND``)."""
        try:
            found = cls(
                told["index"], told["session_id"], told["size"], told["head"], told["root"], tuple(told["peaks"])
            )
            sound = found.tree.root.hex() == found.root
        except (AttributeError, KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            raise LedgerError(fault("LEDGER_UNSOUND", "a leaf of the log is not what was written; verify", place=place))
        return found

    @property
    def tree(self) -> Frontier:
        """The ledger's tree at that size, to be extended."""
        return Frontier(self.size, map(bytes.fromhex, self.peaks))

    @property
    def hash(self) -> bytes:
        """The leaf's hash in the log's tree."""
        told = {"head": self.head, "root": self.root, "session_id": self.session, "size": self.size}
        return leaf_hash(encode(told))

    def payload(self) -> dict[str, Any]:
        """Return the payload of ``ledger.leaf``."""
        told = {"index": self.index, "session_id": self.session, "size": self.size, "head": self.head}
        return {**told, "root": self.root, "peaks": list(self.peaks)}


def encode_peaks(peaks: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return peaks in the form of payloads."""
    return tuple(peak.hex() for peak in peaks)
