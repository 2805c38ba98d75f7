"""Lets a witness sign checkpoints: it is asked after each, what it says is recorded, and what it refuses is said.

The proofs are made of the leaves in the workspace ledger, which is read on from where it was left.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from deedbook.format.canonical import decode, encode
from deedbook.format.errors import LedgerError, WitnessError, fault
from deedbook.format.events import Entry, label, split_line
from deedbook.format.files import Folder
from deedbook.format.leaves import CHECKPOINT, LEAF, Signed, origin_of
from deedbook.format.notes import Note
from deedbook.format.proofs import Checkpoint, Tree, leaf_hash
from deedbook.format.witness_requests import DONE
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.ledger.newest import keep, newest
from deedbook_audit.submission import FolderChannel, WitnessAheadError, WitnessClient

WITNESSED: Final = "ledger.witnessed"


class Written(Protocol):
    """A checkpoint that was written."""

    @property
    def size(self) -> int:
        """How many leaves it has."""

    @property
    def note(self) -> str:
        """What was signed."""


_OURS: Final = b'"event_type":"ledger.'


class Leaves:
    """All leaves of the log in *ledger*, its newest checkpoint, and how much of it each witness has seen, by key."""

    def __init__(self, ledger: WorkspaceLedger) -> None:
        self.tree = Tree()
        self.newest: Signed | None = None
        self.seen: dict[str, int] = {}
        self.lock = Lock()
        self._ledger, self._end, self._lines, self._moves = ledger, 0, 0, ledger.moves

    def catch_up(self) -> None:
        """Read what was added; raises `LedgerError`."""
        place = self._ledger.place
        if self._moves != self._ledger.moves:
            self._moves, self._end = self._ledger.moves, self._ledger.end_of(self._lines)
        for raw in self._ledger.since(self._end):
            self._end, self._lines = self._end + len(raw), self._lines + 1
            if _OURS not in raw[:512]:
                continue
            line = split_line(raw, place=place)
            if line.event_type == LEAF:
                self.tree.push(_hash(decode(line.payload)))
            elif line.event_type == CHECKPOINT:
                self.newest = Signed.parse(decode(line.payload), place)
            elif line.event_type == WITNESSED:
                told = decode(line.payload)
                self.saw(told["witness"], told["size"])

    def saw(self, witness: str, size: int) -> None:
        """Remember that a witness has cosigned so many leaves."""
        self.seen[witness] = max(self.seen.get(witness, 0), size)

    def prove(self, old: int, new: Checkpoint) -> Sequence[bytes]:
        """Return the proof that the checkpoint *new* goes on from one of *old* leaves; raises `LedgerError`."""
        if not old <= new.size <= self.tree.size or self.tree.root(new.size) != new.root:
            why = f"the checkpoint of {new.size} leaves is not of the leaves in it; verify the workspace"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=self._ledger.place))
        return self.tree.consistency(old, new.size)


class Attestation:
    """Asks the witness *party* about the checkpoints in *ledger*, whose state folder is *state*; *leaves* are shared.

    Called with what was written. Raises `WitnessError` and `LedgerError`; then it is asked again after the next one.
    """

    def __init__(self, party: WitnessClient, state: Folder, ledger: WorkspaceLedger, leaves: Leaves) -> None:
        self._party, self._leaves = party, leaves
        self._state, self._ledger = state, ledger

    def __call__(self, made: Written) -> None:
        """Let the witness sign the newest checkpoint, unless it has."""
        leaves, key = self._leaves, str(self._party.key)
        with leaves.lock:
            self._collect()
            leaves.catch_up()
            note = leaves.newest.note if leaves.newest and leaves.newest.size > made.size else made.note
            checkpoint = Checkpoint.parse(Note.parse(note).text)
            known = leaves.seen.get(key, 0)
            if known >= checkpoint.size:
                return
            try:
                signed = self._party.submit(note, lambda old: leaves.prove(old, checkpoint), known)
            except WitnessAheadError as ahead:
                leaves.catch_up()
                if leaves.tree.size < ahead.known:
                    raise
                return  # another process wrote a later checkpoint meanwhile, and asked about that
            self._record(signed, checkpoint.size)

    def _collect(self) -> None:
        """Take over what the witness answered when nobody waited any more; what is no cosignature is asked anew."""
        channel = self._party.channel
        late = channel.collect(origin_of(self._ledger.session_id)) if isinstance(channel, FolderChannel) else []
        for request, answer in late:
            if answer.status == DONE and request.checkpoint.size > self._leaves.seen.get(str(self._party.key), 0):
                try:
                    signed = self._party.add_cosignature(str(request.note), answer.text)
                except WitnessError:
                    continue
                self._record(signed, request.checkpoint.size)

    def _record(self, signed: Note, size: int) -> None:
        """Write down that the witness has signed, and let the workspace's newest note say so."""
        key, ledger = str(self._party.key), self._ledger
        said = encode({"size": size, "witness": key, "note": str(signed)})
        ledger.append([Entry(label(WITNESSED, "runtime", None), ledger.span(), ledger.root, said)])
        self._leaves.saw(key, size)
        with ledger.alone():
            known = newest(self._state)
            if known is not None and known.note.text == signed.text:
                more = tuple(each for each in signed.signatures if each not in known.note.signatures)
                signed = Note(signed.text, (*known.note.signatures, *more))
            keep(self._state, str(signed))


def _hash(told: Mapping[str, Any]) -> bytes:
    """Return the hash of a leaf; that all leaves come to what was signed is checked where they are used."""
    return leaf_hash(encode({name: told[name] for name in ("head", "root", "session_id", "size")}))
