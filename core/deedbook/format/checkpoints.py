"""Checkpoints of a log as C2SP has them (c2sp.org/tlog-checkpoint), and the edge of the tree that they sign; pure.

The tree is that of RFC 6962: a leaf's hash is SHA-256 of ``0x00 || data``, a node's SHA-256 of ``0x01 || left ||
right``.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NoReturn, Self

import attrs

from .errors import LedgerError, SignatureError, fault

CHECKPOINT: Final = "ledger.checkpoint"
HASH_BYTES: Final = 32
EMPTY: Final = sha256(b"").digest()
"""The root of a tree without leaves."""
MAX_SIZE: Final = 2**63 - 1

_SIZE: Final = re.compile("0|[1-9][0-9]{0,18}")


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node above *left* and *right*."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The right edge of a growing tree: enough to extend it and to compute its root, in O(log n) memory.

    *peaks* are the roots of its complete subtrees, the largest first: one for each set bit of *size*. Raises
    `ValueError` for another number.
    """

    __slots__ = ("_peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size, self._peaks = size, list(peaks)
        if len(self._peaks) != size.bit_count() or any(len(peak) != HASH_BYTES for peak in self._peaks):
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks of {HASH_BYTES} bytes")

    def push(self, leaf: bytes) -> None:
        """Add a leaf by its hash."""
        peaks, rest = self._peaks, self.size
        while rest & 1:
            leaf = sha256(b"\x01" + peaks.pop() + leaf).digest()
            rest >>= 1
        peaks.append(leaf)
        self.size += 1

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """The roots of the complete subtrees, the largest first."""
        return tuple(self._peaks)

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        peaks = reversed(self._peaks)
        root = next(peaks, EMPTY)
        for peak in peaks:
            root = node_hash(peak, root)
        return root


@attrs.frozen
class Checkpoint:
    """The state of a log: its *origin* (a name), its number of leaves, their root, and extension lines.

    Its text is what a log and its witnesses sign (`notes`).
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a checkpoint's text, without signatures; raises `SignatureError` (``NOTE_INVALID``)."""
        *lines, rest = text.split("\n")
        if len(lines) < 3 or rest or not all(lines):
            _refuse("a name, a size and a root are expected, each on a line of its own")
        origin, size, root, *extensions = lines
        if not _SIZE.fullmatch(size) or int(size) > MAX_SIZE:
            _refuse(f"its size is {size[:40]!r}, which is no decimal number without leading zeros")
        try:
            raw = b64decode(root, validate=True)
        except ValueError:
            raw = b""
        if len(raw) != HASH_BYTES or b64encode(raw).decode() != root:
            _refuse("its root is not the base64 of 32 bytes")
        return cls(origin, int(size), raw, tuple(extensions))

    def __str__(self) -> str:
        return "".join(
            f"{line}\n" for line in (self.origin, self.size, b64encode(self.root).decode(), *self.extensions)
        )


@attrs.frozen
class SignedCheckpoint:
    """A checkpoint as ``ledger.checkpoint`` records it: the log's tree at that size, and the signed note."""

    size: int
    root: str
    peaks: tuple[str, ...]
    note: str

    @classmethod
    def parse(cls, stored: Mapping[str, Any], place: str) -> Self:
        """Parse the payload of ``ledger.checkpoint``; raises `LedgerError` (``LEDGER_UNSOUND``)."""
        try:
            found = cls(stored["size"], stored["root"], tuple(stored["peaks"]), str(stored["note"]))
            sound = found.tree.root.hex() == found.root
        except (AttributeError, KeyError, TypeError, ValueError):
            sound = False
        if not sound:
            why = "a checkpoint of the log is not what was written; verify"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
        return found

    @property
    def tree(self) -> Frontier:
        """The log's tree at that size, to be extended."""
        return Frontier(self.size, map(bytes.fromhex, self.peaks))

    def payload(self, origin: str, why: str) -> dict[str, Any]:
        """Return the payload of ``ledger.checkpoint``."""
        members = {"origin": origin, "size": self.size, "root": self.root, "peaks": list(self.peaks)}
        return {**members, "note": self.note, "why": why}


def origin_of(ledger: str) -> str:
    """Return the origin of the log in the workspace ledger with that id, which is also the name of its keys."""
    return f"deedbook/{ledger}"


def _refuse(why: str) -> NoReturn:
    raise SignatureError(fault("NOTE_INVALID", f"not a checkpoint: {why}"))
