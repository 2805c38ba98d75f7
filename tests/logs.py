"""The log of a workspace as docs/ledger-format.md describes it, written with hashlib and json alone: an oracle.

Nothing here imports the kernel, nor shares code with it. `Log` adds leaves and checkpoints to a `ledgers.Book`;
`workspace` is a whole honest workspace ledger with a log.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledgers import HASH, OWN, SEED, Book, canonical, signed, verifier_key

ORIGIN = f"deedbook/{OWN}"
NEXT_SEED = bytes(range(32, 64))
WITNESS = "witness.example.com/w1"
WITNESS_SEED = bytes(range(64, 96))
SEEN = 1_795_334_400


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree of these leaf hashes, by RFC 6962's own recursion."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + root(leaves[:half]) + root(leaves[half:])).digest()


def peaks(leaves: Sequence[bytes]) -> list[str]:
    """Return the roots of the complete subtrees in hex, the largest first."""
    found, rest = [], list(leaves)
    while rest:
        size = 1 << len(rest).bit_length() - 1
        found.append(root(rest[:size]).hex())
        rest = rest[size:]
    return found


def tree_of(lines: Sequence[bytes]) -> list[bytes]:
    """Return the leaf hashes of a ledger's tree."""
    return [sha256(b"\0" + bytes.fromhex(json.loads(line)["envelope_hash"])).digest() for line in lines]


def leaf_of(book: Book, index: int, size: int | None = None) -> dict[str, Any]:
    """Return an honest payload of ``ledger.leaf``."""
    lines = book.lines[:size]
    tree = tree_of(lines)
    return {
        "index": index, "session_id": book.session_id, "size": len(lines),
        "head": json.loads(lines[-1])["envelope_hash"], "root": root(tree).hex(), "peaks": peaks(tree),
    }  # fmt: skip


def data_of(leaf: dict[str, Any]) -> bytes:
    """Return what a leaf of the log holds."""
    return canonical({name: leaf[name] for name in ("head", "root", "session_id", "size")})


def key_of(seed: bytes = SEED, previous: bytes | None = None, *, lost: bool = False) -> dict[str, Any]:
    """Return an honest payload of ``ledger.key``; *previous* is the seed of the key before."""
    key, before = verifier_key(ORIGIN, seed), previous and verifier_key(ORIGIN, previous)
    text = f"deedbook log key v1\n{ORIGIN}\n{key}\n{before or '-'}\n"
    note = signed(text, ORIGIN, seed)
    if previous and not lost:
        note += f"{signed(text, ORIGIN, previous).splitlines()[-1]}\n"
    return {"key": key, "previous": before, "signed": note, **({"lost": True} if lost else {})}


def witness_key(name: str = WITNESS, seed: bytes = WITNESS_SEED) -> str:
    """Return the verifier key of a witness."""
    public = b"\x04" + Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    identity = sha256(name.encode() + b"\n" + public).hexdigest()[:8]
    return f"{name}+{identity}+{b64encode(public).decode()}"


def cosigned(note: str, name: str = WITNESS, seed: bytes = WITNESS_SEED, *, time: int = SEEN) -> str:
    """Return *note* with a witness's cosignature below the other signatures."""
    text = note.partition("\n\n")[0] + "\n"
    identity = bytes.fromhex(witness_key(name, seed).split("+")[-2])
    value = Ed25519PrivateKey.from_private_bytes(seed).sign(f"cosignature/v1\ntime {time}\n{text}".encode())
    return f"{note}\u2014 {name} {b64encode(identity + time.to_bytes(8, 'big') + value).decode()}\n"


class Log:
    """The log in *book*, a workspace ledger whose first line has the span *above*."""

    def __init__(self, book: Book, above: str, seed: bytes = SEED) -> None:
        self.book, self.above, self.seed = book, above, seed
        self.leaves: list[bytes] = []

    def key(self, seed: bytes = SEED, previous: bytes | None = None, *, lost: bool = False) -> None:
        """Bring a key into force."""
        self.book.add("ledger.key", key_of(seed, previous, lost=lost), parent=self.above)
        self.seed = seed

    def leaf(self, book: Book, size: int | None = None, **changed: Any) -> dict[str, Any]:
        """Add a leaf of *book* as it is, or as it was with *size* lines."""
        said = leaf_of(book, len(self.leaves), size) | changed
        self.leaves.append(sha256(b"\0" + data_of(said)).digest())
        self.book.add("ledger.leaf", said, parent=self.above)
        return said

    def note(self) -> str:
        """Return the checkpoint of the log as it is, signed."""
        text = f"{ORIGIN}\n{len(self.leaves)}\n{b64encode(root(self.leaves)).decode()}\n"
        return signed(text, ORIGIN, self.seed)

    def checkpoint(self, why: str = "asked", *books: Book) -> str:
        """Add leaves of the workspace ledger and of *books*, and a checkpoint; return its note."""
        for book in (self.book, *books):
            self.leaf(book)
        said = {"origin": ORIGIN, "size": len(self.leaves), "root": root(self.leaves).hex()}
        more = {"peaks": peaks(self.leaves), "note": self.note(), "why": why}
        self.book.add("ledger.checkpoint", {**said, **more}, parent=self.above)
        return more["note"]

    def witnessed(self, note: str, seed: bytes = WITNESS_SEED) -> str:
        """Record that a witness cosigned *note*; return it with the cosignature."""
        note = cosigned(note, seed=seed)
        said = {"size": int(note.split("\n")[1]), "witness": witness_key(seed=seed), "note": note}
        self.book.add("ledger.witnessed", said, parent=self.above)
        return note


def workspace(*books: Book) -> Book:
    """Write a workspace ledger with a log: a key, checkpoints that cover *books*, and another key."""
    book = Book(OWN, genesis="workspace")
    above = book.add("ledger.created", {"format": "1.1", "kernel": "0.1.0", "workspace": "w"})
    log = Log(book, above)
    log.key()
    log.checkpoint("key")
    log.witnessed(log.checkpoint("session_end", *books))
    book.add("ledger.charter", {"digest": HASH, "previous": None, "looser": [], "tighter": []}, parent=above)
    log.key(NEXT_SEED, SEED)
    log.checkpoint("key")
    log.key(SEED, NEXT_SEED, lost=True)
    log.checkpoint("asked")
    return book
