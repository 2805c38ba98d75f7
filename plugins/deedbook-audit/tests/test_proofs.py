"""Merkle trees against the definition of RFC 6962, every proof of every small tree, and what is no proof."""

from base64 import b64encode
from hashlib import sha256
from itertools import pairwise

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.checkpoints import EMPTY, Checkpoint, Frontier
from deedbook.format.errors import SignatureError
from deedbook_audit.transparency.merkle import MerkleTree, includes, is_consistent, leaf_hash

MOST = 33
LEAVES = [leaf_hash(bytes([n])) for n in range(MOST)]


def defined(leaves: list[bytes]) -> bytes:
    """Return the root as RFC 6962, section 2.1, defines it: recursively."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + defined(leaves[:split]) + defined(leaves[split:])).digest()


def test_the_vectors_of_rfc_6962_hold() -> None:
    data = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    tree = MerkleTree(leaf_hash(bytes.fromhex(each)) for each in data)
    assert tree.root(1).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert tree.root(8).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_the_root_of_every_size_is_the_defined_one() -> None:
    tree, edge = MerkleTree(LEAVES), Frontier()
    assert edge.root == EMPTY == tree.root(0)
    for size in range(1, MOST + 1):
        edge.push(LEAVES[size - 1])
        assert edge.root == tree.root(size) == defined(LEAVES[:size])
        assert Frontier(size, edge.peaks).root == edge.root


def test_every_leaf_is_proved_and_nothing_else_is() -> None:
    tree = MerkleTree(LEAVES)
    for size in range(1, MOST + 1):
        root = tree.root(size)
        for index in range(size):
            path = tree.inclusion(index, size)
            assert len(path) <= (size - 1).bit_length()
            assert includes(root, size, index, LEAVES[index], path)
            assert not includes(root, size, index, LEAVES[index - 1], path) or size == 1
            assert not includes(root, size, index, LEAVES[index], [*path, root])
            assert not path or not includes(root, size, index, LEAVES[index], path[:-1])
            assert not path or not includes(root, size, index ^ 1, LEAVES[index], path)


def test_every_beginning_is_proved_and_nothing_else_is() -> None:
    tree = MerkleTree(LEAVES)
    for new in range(MOST + 1):
        for old in range(new + 1):
            path = tree.consistency(old, new)
            assert is_consistent(old, tree.root(old), new, tree.root(new), path)
            assert not is_consistent(old, sha256(b"other").digest(), new, tree.root(new), path)
            assert not is_consistent(old, tree.root(old), new, tree.root(new), [*path, EMPTY])
            if path:
                assert not is_consistent(old, tree.root(old), new, tree.root(new), path[:-1])
    assert not is_consistent(5, tree.root(5), 4, tree.root(4), [])


@given(st.integers(1, 70), st.data())
def test_a_proof_with_one_byte_changed_proves_nothing(size: int, data: st.DataObject) -> None:
    tree = MerkleTree(leaf_hash(b"%d" % n) for n in range(size))
    index = data.draw(st.integers(0, size - 1))
    path, root = tree.inclusion(index), tree.root()
    for at, each in enumerate(path):
        changed = [*path[:at], bytes([each[0] ^ 1]) + each[1:], *path[at + 1 :]]
        assert not includes(root, size, index, leaf_hash(b"%d" % index), changed)


def test_a_frontier_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="3 leaves has 2 peaks"):
        Frontier(3, [EMPTY])


def test_trees_refuse_what_they_never_had() -> None:
    tree = MerkleTree(LEAVES[:3])
    for ask in (lambda: tree.root(4), lambda: tree.inclusion(3), lambda: tree.consistency(4), lambda: tree.root(-1)):
        with pytest.raises(ValueError, match="tree of"):
            ask()


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    for made in (Checkpoint("example.com/log", 7, EMPTY), Checkpoint("log", 0, EMPTY, ("more", "and more"))):
        assert Checkpoint.parse(str(made)) == made


GOOD = f"origin\n7\n{b64encode(EMPTY).decode()}\n"
BAD = [GOOD[:-1], "", "\n", "origin\n7\n", GOOD.replace("7", "07"), GOOD.replace("7", "-1"), GOOD.replace("7", "+7"),
       GOOD.replace("7", str(2**63)), GOOD.replace("origin", ""), f"{GOOD}\n", GOOD.replace("=", ""),
       GOOD.replace("7", "\u0667"), f"{GOOD}extension"]  # fmt: skip


@for_each("text", BAD)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(SignatureError, match="not a checkpoint"):
        Checkpoint.parse(text)


def test_rows_hold_about_twice_the_leaves() -> None:
    sizes = [len(row) for row in MerkleTree(leaf_hash(b"%d" % n) for n in range(1000))._rows]
    assert all(below // 2 - 32 <= above <= below // 2 for below, above in pairwise(sizes))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 33])
def test_tree_that_is_made_at_once_is_the_one_that_grows(size):
    whole, grown = MerkleTree(leaf_hash(b"%d" % n) for n in range(size)), MerkleTree()
    for n in range(size):
        grown.push(leaf_hash(b"%d" % n))
    for each in (whole, grown):
        each.push(leaf_hash(b"one more"))
    assert (whole.size, whole.root(), whole.inclusion(size // 2)) == (
        size + 1,
        grown.root(),
        grown.inclusion(size // 2),
    )
