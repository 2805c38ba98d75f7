"""Asks a witness to sign checkpoints: it is asked after each, its answer is recorded, and a refusal is reported.

The proofs are built from the leaves in the workspace ledger, which is read incrementally.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from deedbook.format.canonical import decode, encode
from deedbook.format.checkpoints import CHECKPOINT, Checkpoint, SignedCheckpoint, origin_of
from deedbook.format.errors import LedgerError, WitnessError, fault
from deedbook.format.events import Entry, label, split_line
from deedbook.format.files import Folder
from deedbook.format.notes import Note
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.ledger.newest import read_newest
from deedbook_audit.submission import FolderChannel, WitnessAheadError, WitnessClient
from deedbook_audit.transparency.merkle import MerkleTree, leaf_hash
from deedbook_audit.transparency.witness_requests import DONE

from .leaves import LEAF
from .newest import update_newest

WITNESSED: Final = "ledger.witnessed"


class WrittenCheckpoint(Protocol):
    """A written checkpoint."""

    @property
    def size(self) -> int:
        """The number of its leaves."""

    @property
    def note(self) -> str:
        """Its signed note."""


_OURS: Final = b'"event_type":"ledger.'


class Leaves:
    """All leaves of the log in *ledger*, its newest checkpoint, and the size that each witness has seen, by key."""

    def __init__(self, ledger: WorkspaceLedger) -> None:
        self.tree = MerkleTree()
        self.newest: SignedCheckpoint | None = None
        self.seen_sizes: dict[str, int] = {}
        self.lock = Lock()
        self._ledger, self._end, self._lines, self._moves = ledger, 0, 0, ledger.moves

    def catch_up(self) -> None:
        """Read the new lines; raises `LedgerError`."""
        place = self._ledger.place
        if self._moves != self._ledger.moves:
            self._moves, self._end = self._ledger.moves, self._ledger.end_of(self._lines)
        for raw in self._ledger.since(self._end):
            self._end, self._lines = self._end + len(raw), self._lines + 1
            if _OURS not in raw[:512]:
                continue
            line = split_line(raw, place=place)
            if line.event_type == LEAF:
                self.tree.push(_hash_leaf(decode(line.payload)))
            elif line.event_type == CHECKPOINT:
                self.newest = SignedCheckpoint.parse(decode(line.payload), place)
            elif line.event_type == WITNESSED:
                payload = decode(line.payload)
                self.record_seen(payload["witness"], payload["size"])

    def record_seen(self, witness: str, size: int) -> None:
        """Record that a witness has cosigned so many leaves."""
        self.seen_sizes[witness] = max(self.seen_sizes.get(witness, 0), size)

    def prove(self, old: int, new: Checkpoint) -> Sequence[bytes]:
        """Return the proof that the checkpoint *new* extends one of *old* leaves; raises `LedgerError`."""
        if not old <= new.size <= self.tree.size or self.tree.root(new.size) != new.root:
            why = f"the checkpoint of {new.size} leaves is not of the leaves in it; verify the workspace"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=self._ledger.place))
        return self.tree.consistency(old, new.size)


class Attestation:
    """Asks *witness* about the checkpoints in *ledger*, whose state folder is *state*; *leaves* are shared.

    It is called with each checkpoint. Raises `WitnessError` and `LedgerError`; the witness is then asked again after
    the next one.
    """

    def __init__(self, witness: WitnessClient, state: Folder, ledger: WorkspaceLedger, leaves: Leaves) -> None:
        self._witness, self._leaves = witness, leaves
        self._state, self._ledger = state, ledger

    def __call__(self, written: WrittenCheckpoint) -> None:
        """Let the witness sign the newest checkpoint, unless it has."""
        leaves, key = self._leaves, str(self._witness.key)
        with leaves.lock:
            self._collect()
            leaves.catch_up()
            note = leaves.newest.note if leaves.newest and leaves.newest.size > written.size else written.note
            checkpoint = Checkpoint.parse(Note.parse(note).text)
            known = leaves.seen_sizes.get(key, 0)
            if known >= checkpoint.size:
                return
            try:
                signed = self._witness.submit(note, lambda old: leaves.prove(old, checkpoint), known)
            except WitnessAheadError as ahead:
                leaves.catch_up()
                if leaves.tree.size < ahead.known:
                    raise
                return  # another process has written a later checkpoint, and asked the witness about it
            self._record(signed, checkpoint.size)

    def _collect(self) -> None:
        """Record late answers of the witness; an answer without a cosignature is requested again."""
        channel = self._witness.channel
        late = channel.collect(origin_of(self._ledger.session_id)) if isinstance(channel, FolderChannel) else []
        for request, answer in late:
            if answer.status == DONE and request.checkpoint.size > self._leaves.seen_sizes.get(
                str(self._witness.key), 0
            ):
                try:
                    signed = self._witness.add_cosignature(str(request.note), answer.text)
                except WitnessError:
                    continue
                self._record(signed, request.checkpoint.size)

    def _record(self, signed: Note, size: int) -> None:
        """Record that the witness has signed, and add the signature to the workspace's newest note."""
        key, ledger = str(self._witness.key), self._ledger
        payload = encode({"size": size, "witness": key, "note": str(signed)})
        ledger.append([Entry(label(WITNESSED, "runtime", None), ledger.span(), ledger.root, payload)])
        self._leaves.record_seen(key, size)
        with ledger.exclusive():
            known = read_newest(self._state)
            if known is not None and known.note.text == signed.text:
                more = tuple(each for each in signed.signatures if each not in known.note.signatures)
                signed = Note(signed.text, (*known.note.signatures, *more))
            update_newest(self._state, str(signed))


def _hash_leaf(payload: Mapping[str, Any]) -> bytes:
    """Return the hash of a leaf; the users of the leaves check them against what was signed."""
    return leaf_hash(encode({name: payload[name] for name in ("head", "root", "session_id", "size")}))
