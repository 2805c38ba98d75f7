"""The log of a workspace as docs/ledger-format.md describes it, written with hashlib and json alone: an oracle.

Nothing here imports the kernel, nor shares code with it. `Log` adds leaves and checkpoints to a `ledgers.Book`;
`workspace` is a whole honest workspace ledger with a log. `audit` checks the log of a state folder by the page's rules.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
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


# --- checking ---------------------------------------------------------------------------------------------------------


def is_signed(note: str, key: str) -> bool:
    """Say whether a verifier key signed a note."""
    name, identity, public = key.split("+", 2)
    text, _, below = note.rpartition("\n\n")
    for line in below.splitlines():
        _, who, value = line.split(" ")
        raw = b64decode(value)
        if who == name and raw[:4].hex() == identity:
            try:
                Ed25519PublicKey.from_public_bytes(b64decode(public)[1:]).verify(raw[4:], f"{text}\n".encode())
            except InvalidSignature:
                return False
            return True
    return False


def audit(state: Path) -> list[dict[str, Any]]:
    """Check the log of a *state* folder as the page says, sessions and all; return its checkpoints."""
    stored = (state / "workspace" / ".events.jsonl").read_bytes().splitlines(keepends=True)
    lines = [json.loads(line) for line in stored]
    own = lines[0]["session_id"]
    key, sizes, leaves, found = None, dict[str, int](), list[bytes](), list[dict[str, Any]]()
    books = {own: stored}
    for path in state.glob("sessions/*/.events.jsonl"):
        books[path.parent.name] = path.read_bytes().splitlines(keepends=True)
    trees = {name: tree_of(book) for name, book in books.items() if book}
    for line in lines:
        said = line["payload"]
        if line["event_type"] == "ledger.key":
            assert said["previous"] == key
            text = f"deedbook log key v1\ndeedbook/{own}\n{said['key']}\n{key or '-'}\n"
            assert said["signed"].startswith(f"{text}\n\u2014 ")
            assert is_signed(said["signed"], said["key"])
            assert said.get("lost", False) or key is None or is_signed(said["signed"], key)
            key = said["key"]
        elif line["event_type"] == "ledger.leaf":
            name, size = said["session_id"], said["size"]
            assert said["index"] == len(leaves)
            assert sizes.get(name, 1) <= size <= len(books[name])
            assert name != own or size <= line["seq"]
            assert json.loads(books[name][size - 1])["envelope_hash"] == said["head"]
            assert (root(trees[name][:size]).hex(), peaks(trees[name][:size])) == (said["root"], said["peaks"])
            sizes[name] = size
            leaves.append(sha256(b"\0" + data_of(said)).digest())
        elif line["event_type"] == "ledger.checkpoint":
            assert (said["size"], said["root"], said["peaks"]) == (len(leaves), root(leaves).hex(), peaks(leaves))
            assert not found or found[-1]["size"] < said["size"]
            text = f"deedbook/{own}\n{len(leaves)}\n{b64encode(root(leaves)).decode()}\n"
            assert said["note"].startswith(f"{text}\n\u2014 ")
            assert is_signed(said["note"], str(key))
            found.append(said)
    if found:
        kept = (state / "checkpoint").read_text(encoding="utf-8")
        _, size, told = kept.split("\n")[:3]
        assert b64encode(root(leaves[: int(size)])).decode() == told
    return found


def covered(state: Path) -> dict[str, int]:
    """Return how many lines of each session the newest checkpoint covers."""
    lines = [json.loads(line) for line in (state / "workspace" / ".events.jsonl").read_bytes().splitlines()]
    last = max((line["seq"] for line in lines if line["event_type"] == "ledger.checkpoint"), default=-1)
    leaves = [line["payload"] for line in lines[:last] if line["event_type"] == "ledger.leaf"]
    return {leaf["session_id"]: leaf["size"] for leaf in leaves}
