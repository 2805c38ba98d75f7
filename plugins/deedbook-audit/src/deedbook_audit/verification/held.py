"""Checkpoints that somebody else holds, and keys that a reader trusts: what a log has to stand against.

A log proves itself only to who knows its key from elsewhere, or has an older checkpoint of it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from deedbook.format.cosignatures import WitnessKey
from deedbook.format.errors import SignatureError
from deedbook.format.notes import Note, VerifierKey
from deedbook.format.proofs import Checkpoint

from .log import ORIGIN, Log, Seen, Signed
from .verdict import Contradiction

_NO_CHECKPOINT: Final = "the ledger has no ledger.checkpoint"


@attrs.frozen
class Held:
    """A checkpoint's *note* that is held at *place*, which is words for people."""

    place: str
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def read(cls, place: str, text: str) -> "Held":
        """Read a note; raises `SignatureError` (``NOTE_INVALID``)."""
        note = Note.parse(text)
        return cls(place, note, Checkpoint.parse(note.text))


@attrs.frozen
class Trust:
    """Whom a reader believes: *keys* of the log, and *witnesses*; both may be empty."""

    keys: Sequence[VerifierKey] = ()
    witnesses: Sequence[WitnessKey] = ()

    def of(self, log: Log, key: VerifierKey) -> str | None:
        """Say in words why *key* of the log is believed; ``None`` if others are, and nobody of them vouches for it."""
        if not self.keys:
            return "which only the ledger itself vouches for"
        if key in self.keys:
            return "trusted"
        believed = None
        for each in log.keys:
            believed = each.key if each.key in self.keys or (believed is not None and each.handed) else None
            if each.key == key and believed is not None:
                return "handed over to by a trusted one"
        return None

    def seen(self, held: Held) -> Iterator[Seen]:
        """Yield which believed witnesses signed a checkpoint that is held, and when."""
        for witness in self.witnesses:
            time = witness.cosigned_at(held.note)
            if time is not None:
                yield Seen(held.checkpoint.size, witness, time)


def contradiction(log: Log, held: Held, trust: Trust) -> Contradiction | None:
    """Return how *log* contradicts a checkpoint that is held; ``None`` if it goes on from there."""
    size, at = held.checkpoint.size, f"the checkpoint of {held.checkpoint.size} leaves in {held.place}"
    if held.checkpoint.origin != log.origin:
        return Contradiction("broken", log.identity, None, f"{at} is of {held.checkpoint.origin}, and not of this log")
    if size > log.size:
        return Contradiction("rolled_back", log.identity, None, f"the log has {log.size} leaves, and {at} is signed")
    seq = log.leaf_seq(size)
    if log.tree.root(size) != held.checkpoint.root:
        why = f"the log's first {size} leaves are not those of {at}: it was written anew"
        return Contradiction("broken", log.identity, seq, why)
    if log.key_of(held.note) is None and not any(map(held.note.signed_by, trust.keys)):
        return Contradiction("broken", log.identity, seq, f"{at} is signed by no key of the log")
    if size > log.checkpointed:  # a note leaves the writer only after its event was synced
        has = f"the newest ledger.checkpoint has {log.checkpointed} leaves" if log.checkpointed else _NO_CHECKPOINT
        return Contradiction("rolled_back", log.identity, None, f"{has}, and {at} is signed: lines were taken away")
    return None


def unlogged(held: Held, identity: str) -> Contradiction:
    """Return that a workspace has no log at all, of which a checkpoint is held."""
    why = f"the workspace has no log, and a checkpoint of {held.checkpoint.size} leaves in {held.place} is signed"
    return Contradiction("rolled_back", identity, None, why)


def misnamed(identity: str | None, trust: Trust) -> Iterator[Contradiction]:
    """Yield each key that the reader names which cannot be of the log here: it holds the id of another ledger.

    *identity* is that of the workspace ledger, ``None`` if there is none.
    """
    for key in trust.keys:
        if identity is None or key.name != f"{ORIGIN}{identity}":
            there = f"this is {identity}" if identity else "there is no workspace ledger"
            why = f"the key {key.name}+{key.id} names the log of another workspace ledger; {there}"
            yield Contradiction("rolled_back", identity or "the workspace ledger", None, why)


def distrusted(log: Log, newest: Signed, trust: Trust) -> Contradiction | None:
    """Return that nobody whom the reader trusts vouches for the key of the *newest* checkpoint, if that is so."""
    if newest.key is None or trust.of(log, newest.key) is not None:
        return None
    known = ", ".join(key.id for key in trust.keys)
    why = f"the checkpoint is signed by the key {newest.key.id}, for which none of the trusted keys ({known}) vouches"
    return Contradiction("broken", log.identity, newest.seq, why)


def unsigned(identity: str, trust: Trust) -> Contradiction | None:
    """Return that a log has no checkpoint at all, where the reader trusts keys that should have signed one."""
    if not trust.keys:
        return None
    known = ", ".join(key.id for key in trust.keys)
    why = f"the workspace has no checkpoint that holds, and its log is trusted to be signed by {known}"
    return Contradiction("rolled_back", identity, None, f"{why}: its log was taken away, or it is another workspace")


def read_held(place: str, text: str) -> Held | str:
    """Read a note; a text says why it is none."""
    try:
        return Held.read(place, text)
    except SignatureError as problem:
        return f"{place}: {problem.error.message}"
