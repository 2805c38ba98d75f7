"""Merkle trees of RFC 6962 and their proofs; pure.

Everything that checks is written after RFC 9162, section 2.1, and shares nothing with what makes proofs but the two
hashes.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from deedbook.format.checkpoints import EMPTY, HASH_BYTES, node_hash


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf that holds *data*."""
    return sha256(b"\x00" + data).digest()


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
