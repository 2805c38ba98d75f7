"""External checkpoints, and the keys that a reader trusts: the log has to agree with both.

A log is proof only for a reader who has its key, or an older checkpoint of it, from another source.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.errors import SignatureError
from deedbook.format.notes import Note, VerifierKey, WitnessKey
from deedbook_audit.transparency.cosignatures import cosigned_at

from .log import ORIGIN, Cosignature, Log, SignedCheckpoint
from .verdict import Contradiction

_NO_CHECKPOINT: Final = "the ledger has no ledger.checkpoint"


@attrs.frozen
class ExternalCheckpoint:
    """A checkpoint's *note* at *place*, a description for people."""

    place: str
    note: Note
    checkpoint: Checkpoint

    @classmethod
    def read(cls, place: str, text: str) -> "ExternalCheckpoint":
        """Read a note; raises `SignatureError` (``NOTE_INVALID``)."""
        note = Note.parse(text)
        return cls(place, note, Checkpoint.parse(note.text))


@attrs.frozen
class LogTrust:
    """The reader's trust: *keys* of the log, and keys of *witnesses*; both may be empty."""

    keys: Sequence[VerifierKey] = ()
    witnesses: Sequence[WitnessKey] = ()

    def explain_key(self, log: Log, key: VerifierKey) -> str | None:
        """Return why *key* of the log is trusted; ``None`` if only other keys are, and none of them endorses it."""
        if not self.keys:
            return "which only the ledger itself vouches for"
        if key in self.keys:
            return "trusted"
        believed = None
        for each in log.keys:
            believed = each.key if each.key in self.keys or (believed is not None and each.is_endorsed) else None
            if each.key == key and believed is not None:
                return "handed over to by a trusted one"
        return None

    def find_cosignatures(self, external: ExternalCheckpoint) -> Iterator[Cosignature]:
        """Yield the cosignatures of trusted witnesses on an external checkpoint."""
        for witness in self.witnesses:
            time = cosigned_at(witness, external.note)
            if time is not None:
                yield Cosignature(external.checkpoint.size, witness, time)


def find_contradiction(log: Log, external: ExternalCheckpoint, trust: LogTrust) -> Contradiction | None:
    """Return the contradiction between *log* and an external checkpoint; ``None`` if the log extends it."""
    size, at = external.checkpoint.size, f"the checkpoint of {external.checkpoint.size} leaves in {external.place}"
    if external.checkpoint.origin != log.origin:
        return Contradiction(
            "broken", log.identity, None, f"{at} is of {external.checkpoint.origin}, and not of this log"
        )
    if size > log.size:
        return Contradiction("rolled_back", log.identity, None, f"the log has {log.size} leaves, and {at} is signed")
    seq = log.find_leaf_seq(size)
    if log.tree.root(size) != external.checkpoint.root:
        why = f"the log's first {size} leaves are not those of {at}: it was written anew"
        return Contradiction("broken", log.identity, seq, why)
    if log.find_key(external.note) is None and not any(map(external.note.is_signed_by, trust.keys)):
        return Contradiction("broken", log.identity, seq, f"{at} is signed by no key of the log")
    if size > log.checkpoint_size:  # the writer publishes a note only after its event is synced
        has = (
            f"the newest ledger.checkpoint has {log.checkpoint_size} leaves" if log.checkpoint_size else _NO_CHECKPOINT
        )
        return Contradiction("rolled_back", log.identity, None, f"{has}, and {at} is signed: lines were taken away")
    return None


def report_missing_log(external: ExternalCheckpoint, identity: str) -> Contradiction:
    """Return the contradiction of a workspace without a log, although there is an external checkpoint of it."""
    why = (
        f"the workspace has no log, and a checkpoint of {external.checkpoint.size} leaves in {external.place} is signed"
    )
    return Contradiction("rolled_back", identity, None, why)


def find_foreign_keys(identity: str | None, trust: LogTrust) -> Iterator[Contradiction]:
    """Yield each key that the reader names which belongs to another log: its name has another ledger's id.

    *identity* is the workspace ledger's id, ``None`` if there is none.
    """
    for key in trust.keys:
        if identity is None or key.name != f"{ORIGIN}{identity}":
            there = f"this is {identity}" if identity else "there is no workspace ledger"
            why = f"the key {key.name}+{key.id} names the log of another workspace ledger; {there}"
            yield Contradiction("rolled_back", identity or "the workspace ledger", None, why)


def find_untrusted_key(log: Log, newest: SignedCheckpoint, trust: LogTrust) -> Contradiction | None:
    """Return the contradiction of a *newest* checkpoint whose key no trusted key endorses, if that is so."""
    if newest.key is None or trust.explain_key(log, newest.key) is not None:
        return None
    known = ", ".join(key.id for key in trust.keys)
    why = f"the checkpoint is signed by the key {newest.key.id}, for which none of the trusted keys ({known}) vouches"
    return Contradiction("broken", log.identity, newest.seq, why)


def find_missing_checkpoint(identity: str, trust: LogTrust) -> Contradiction | None:
    """Return the contradiction of a log without a checkpoint, although the reader trusts keys that sign it."""
    if not trust.keys:
        return None
    known = ", ".join(key.id for key in trust.keys)
    why = f"the workspace has no checkpoint that holds, and its log is trusted to be signed by {known}"
    return Contradiction("rolled_back", identity, None, f"{why}: its log was taken away, or it is another workspace")


def parse_checkpoint(place: str, text: str) -> ExternalCheckpoint | str:
    """Return the checkpoint in a note; a text says why it is none."""
    try:
        return ExternalCheckpoint.read(place, text)
    except SignatureError as problem:
        return f"{place}: {problem.error.message}"
