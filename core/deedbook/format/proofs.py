"""Merkle trees of RFC 6962, their proofs, and checkpoints as C2SP has them (c2sp.org/tlog-checkpoint); pure.

A leaf's hash is SHA-256 of ``0x00 || data``, a node's SHA-256 of ``0x01 || left || right``. Everything that checks is
written after RFC 9162, section 2.1, and shares nothing with what makes proofs but these two.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NoReturn, Self

import attrs

from .errors import SignatureError, fault

HASH_BYTES: Final = 32
EMPTY: Final = sha256(b"").digest()
"""The root of a tree without leaves."""
MAX_SIZE: Final = 2**63 - 1

_SIZE: Final = re.compile("0|[1-9][0-9]{0,18}")


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf that holds *data*."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node above *left* and *right*."""
    return sha256(b"\x01" + left + right).digest()


# --- trees ------------------------------------------------------------------------------------------------------------


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


class MerkleTree:
    """A whole tree, stored as rows of hashes, so that a proof costs O(log n); 64 bytes a leaf."""

    __slots__ = ("_rows",)

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        row = bytearray(b"".join(leaves))
        self._rows = [row]
        while len(row) >= 2 * HASH_BYTES:
            pairs = range(0, len(row) - HASH_BYTES, 2 * HASH_BYTES)
            row = bytearray(b"".join([sha256(b"\x01" + row[at : at + 64]).digest() for at in pairs]))
            self._rows.append(row)

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._rows[0]) // HASH_BYTES

    def push(self, leaf: bytes) -> None:
        """Add a leaf by its hash."""
        rows, level = self._rows, 1
        row = rows[0]
        row += leaf
        while not len(row) & 32:
            node = sha256(b"\x01" + row[-64:]).digest()
            if level == len(rows):
                rows.append(bytearray())
            row = rows[level]
            row += node
            level += 1

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the tree when it had *size* leaves (default: all)."""
        size = self._check_size(self.size if size is None else size)
        root = b""
        for level in range(size.bit_length()):
            root = self._edge(level, size, root)
        return root or EMPTY

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the hashes that prove leaf *index* in the tree of *size* leaves, from the leaf upwards."""
        size = self._check_size(self.size if size is None else size)
        if not 0 <= index < size:
            raise ValueError(f"no leaf {index} in a tree of {size}")
        return self._path(0, index, size)

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Return the hashes that prove that the tree of *old* leaves is a prefix of the tree of *new* leaves."""
        new = self._check_size(self.size if new is None else new)
        if not 0 <= old <= new:
            raise ValueError(f"a tree of {old} leaves is no beginning of one of {new}")
        if old in (0, new):
            return []
        level = (old & -old).bit_length() - 1
        index = (old >> level) - 1
        first = [self._at(level, index)] if index else []
        return first + self._path(level, index, new)

    def _path(self, level: int, index: int, size: int) -> list[bytes]:
        """Return the siblings of the node at *index* of *level* and of its ancestors, in the tree of *size* leaves."""
        path, edge = [], b""
        for below in range(level):
            edge = self._edge(below, size, edge)
        last = (size - 1) >> level
        while last:
            if index & 1:
                path.append(self._at(level, index - 1))
            elif index < last:
                path.append(self._at(level, index + 1) if index + 1 < size >> level else edge)
            edge = self._edge(level, size, edge)
            level, index, last = level + 1, index >> 1, last >> 1
        return path

    def _edge(self, level: int, size: int, edge: bytes) -> bytes:
        """Return the hash of the incomplete subtree above *level*; *edge* is that of the level below."""
        if not size >> level & 1:
            return edge
        node = self._at(level, (size >> level) - 1)
        return node_hash(node, edge) if edge else node

    def _at(self, level: int, index: int) -> bytes:
        return bytes(self._rows[level][HASH_BYTES * index : HASH_BYTES * (index + 1)])

    def _check_size(self, size: int) -> int:
        if not 0 <= size <= self.size:
            raise ValueError(f"a tree of {self.size} leaves never had {size}")
        return size


# --- checking ---------------------------------------------------------------------------------------------------------


def includes(root: bytes, size: int, index: int, leaf: bytes, path: Sequence[bytes]) -> bool:
    """Return whether *path* proves that the tree of *size* leaves with *root* has the hash *leaf* at *index*.

    RFC 9162, section 2.1.3.2.
    """
    if not 0 <= index < size:
        return False
    last, found = size - 1, leaf
    for other in path:
        if not last:
            return False
        if index & 1 or index == last:
            found = node_hash(other, found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = node_hash(found, other)
        index, last = index >> 1, last >> 1
    return not last and found == root


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, path: Sequence[bytes]) -> bool:
    """Return whether *path* proves that the tree of *old* leaves is a prefix of the tree of *new* leaves.

    RFC 9162, section 2.1.4.2; the empty tree is a prefix of every tree.
    """
    if old in (0, new):
        known = EMPTY if old == 0 else new_root
        return not path and old_root == known and 0 <= old <= new and (new > 0 or new_root == EMPTY)
    if not 0 < old < new or not path:
        return False
    path = path if old & (old - 1) else [old_root, *path]
    index, last = old - 1, new - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    before = after = path[0]
    for other in path[1:]:
        if not last:
            return False
        if index & 1 or index == last:
            before, after = node_hash(other, before), node_hash(other, after)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            after = node_hash(after, other)
        index, last = index >> 1, last >> 1
    return not last and before == old_root and after == new_root


# --- checkpoints ------------------------------------------------------------------------------------------------------


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


def _refuse(why: str) -> NoReturn:
    raise SignatureError(fault("NOTE_INVALID", f"not a checkpoint: {why}"))
