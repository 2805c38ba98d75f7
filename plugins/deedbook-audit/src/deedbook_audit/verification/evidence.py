"""Checking a proof that somebody else made: nothing is read but the proof, and the keys that the reader believes.

It shares RFC 9162's checks with the kernel, and nothing with what makes proofs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook.format import events
from deedbook.format.canonical import encode
from deedbook.format.cosignatures import WitnessKey
from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.notes import Note, VerifierKey
from deedbook.format.proofs import Checkpoint, Frontier, includes, is_consistent, leaf_hash
from deedbook.format.rotation import Rotation

NOBODY: Final = "the proof alone"


class NotProved(Exception):  # noqa: N818 - the verdict's own words
    """The proof does not prove what it says; the text says why."""


@attrs.frozen
class Trust:
    """What the reader believes: *keys* of logs by who vouches for each, and *witnesses*."""

    keys: Mapping[VerifierKey, str] = attrs.field(factory=dict)
    witnesses: Sequence[WitnessKey] = ()


@attrs.frozen(kw_only=True)
class Verdict:
    """What a proof comes to. *said* is the first line; *vouched* says who vouches for the log's *key*.

    *witnessed* holds the names of witnesses that are believed and when each cosigned; *strangers* counts signatures
    of keys that the reader did not name.
    """

    proved: bool
    said: str
    kind: str = ""
    origin: str = ""
    size: int = 0
    key: str = ""
    vouched: str = ""
    witnessed: Sequence[tuple[str, str]] = ()
    strangers: int = 0
    about: Mapping[str, Any] = attrs.field(factory=dict)

    def lines(self) -> Iterator[str]:
        """Yield the verdict for people."""
        yield self.said
        if not self.proved:
            return
        if self.vouched == NOBODY:
            how = "hold it against one that you were given, or name that with --log-key"
            yield f"only the proof itself vouches for the key; {how}: {self.key}"
        else:
            yield f"the key is known from {self.vouched}: {self.key}"
        if "more" in self.about:
            yield f"the ledger here begins with these {self.about['events']} events, and has {self.about['more']} more"
        if self.strangers:
            count = "1 more signature is" if self.strangers == 1 else f"{self.strangers} more signatures are"
            yield f"{count} by keys that nobody named here; --witness-key names a witness"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        told = attrs.asdict(self, filter=lambda field, _: field.name not in {"said", "witnessed", "about"})
        seen = [{"witness": name, "at": at} for name, at in self.witnessed]
        return {"schema_version": "v1", "verdict": self.said, **told, "witnessed": seen, **self.about}


def check(proof: Mapping[str, Any], trust: Trust) -> Verdict:
    """Judge a *proof* that fits ``output_proof_v1``; whatever it says, nothing is raised."""
    try:
        return _inclusion(proof, trust) if proof["kind"] == "inclusion" else _consistency(proof, trust)
    except NotProved as problem:
        return Verdict(proved=False, said=f"NOT PROVED: {problem}", kind=str(proof.get("kind")))
    except KeyError as problem:
        return Verdict(proved=False, said=f"NOT PROVED: it has no {problem.args[0]!r}", kind=str(proof.get("kind")))
    except (DeedbookError, ValueError) as problem:
        return Verdict(proved=False, said=f"NOT PROVED: {problem}", kind=str(proof.get("kind")))


def held_against(verdict: Verdict, lines: Iterable[bytes]) -> Verdict:
    """Hold a ledger's *lines* against what was proved of it: it has to begin with the very events of the leaf."""
    if not verdict.proved or verdict.kind != "inclusion":
        return verdict
    tree, size, more = Frontier(), verdict.about["events"], 0
    for line in lines:
        if tree.size == size:
            more += 1
            continue
        tree.push(_leaf(line))
    if (tree.size, tree.root.hex()) != (size, verdict.about["root"]):
        why = f"the ledger here does not begin with the {size} events that the proof is about"
        return Verdict(proved=False, said=f"NOT PROVED: {why}", kind=verdict.kind)
    return attrs.evolve(verdict, about={**verdict.about, "more": more})


def _leaf(raw: bytes) -> bytes:
    """Return the hash of a line in its ledger's tree; of one that is not what it says of itself, what no tree has."""
    try:
        line = events.split_line(raw)
    except LedgerError:
        return b""
    gone = line.payload == events.excised(line.payload_hash) and sha256(line.header).hexdigest() == line.envelope_hash
    return leaf_hash(bytes.fromhex(line.envelope_hash)) if line.sound or gone else b""


def _inclusion(proof: Mapping[str, Any], trust: Trust) -> Verdict:
    note, leaf, event = Note.parse(proof["note"]), proof["leaf"], proof.get("event")
    signed = _Signed.of(proof, [note], trust)
    told = {name: leaf[name] for name in ("head", "root", "session_id", "size")}
    log = Checkpoint.parse(note.text)
    if not includes(log.root, log.size, leaf["index"], leaf_hash(encode(told)), _path(proof["path"])):
        raise NotProved(f"leaf {leaf['index']} does not stand in the log of {log.size} leaves")
    what = f"the first {leaf['size']} events of session {leaf['session_id']}"
    about = {"session": leaf["session_id"], "events": leaf["size"], "head": leaf["head"], "root": leaf["root"]}
    if event:
        kind, ts, gone = _event(event, leaf)
        what = f"event {event['seq']} ({kind}, {ts}) of session {leaf['session_id']}"
        what += ", whose payload was taken out of its line," if gone else ""
        about |= {"seq": event["seq"], "event_type": kind, "ts": ts, "excised": gone}
    return signed.verdict("inclusion", f"PROVED: {what} included in checkpoint {log.size}", log.size, note, about)


def _consistency(proof: Mapping[str, Any], trust: Trust) -> Verdict:
    notes = [Note.parse(proof["old"]), Note.parse(proof["new"])]
    signed = _Signed.of(proof, notes, trust)
    old, new = (Checkpoint.parse(note.text) for note in notes)
    if not is_consistent(old.size, old.root, new.size, new.root, _path(proof["path"])):
        raise NotProved(f"the log of {new.size} leaves does not go on from that of {old.size}: one of them was changed")
    said = f"PROVED: checkpoint {new.size} goes on from checkpoint {old.size}, nothing was changed or taken away"
    return signed.verdict("consistency", said, new.size, notes[1], {"old_size": old.size})


def _event(event: Mapping[str, Any], leaf: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Check that the line stands in the ledger of *leaf*; return its type, its time, and if it was taken out."""
    line = events.split_line(event["line"].encode())
    if sha256(line.header).hexdigest() != line.envelope_hash:
        raise NotProved("the line's header is not what its envelope_hash says")
    gone = line.payload == events.excised(line.payload_hash)
    if not gone and sha256(line.payload).hexdigest() != line.payload_hash:
        raise NotProved("the line's payload is not what its payload_hash says")
    if (line.session_id, line.seq) != (leaf["session_id"], event["seq"]):
        raise NotProved(f"the line is event {line.seq} of session {line.session_id}, which the proof is not about")
    own, path = leaf_hash(bytes.fromhex(line.envelope_hash)), _path(event["path"])
    if not includes(bytes.fromhex(leaf["root"]), leaf["size"], line.seq, own, path):
        raise NotProved(f"event {line.seq} does not stand among the {leaf['size']} events of its session")
    if line.seq == leaf["size"] - 1 and line.envelope_hash != leaf["head"]:
        raise NotProved("the leaf names another last event")
    return line.event_type, line.ts, gone


@attrs.frozen
class _Signed:
    """Who signed the notes of a proof, and who vouches for that key."""

    origin: str
    key: VerifierKey
    vouched: str
    trust: Trust

    @classmethod
    def of(cls, proof: Mapping[str, Any], notes: Sequence[Note], trust: Trust) -> "_Signed":
        """Check that keys of the log signed all *notes*; a key counts by who vouches for it, or for one beside it."""
        origin = proof["origin"]
        if any(Checkpoint.parse(note.text).origin != origin for note in notes):
            raise NotProved("its checkpoints are of another log than it says")
        known = _vouched([Rotation.parse(Note.parse(each)) for each in proof["keys"]], trust, origin)
        found = [next(((key, who) for key, who in known.items() if note.signed_by(key)), None) for note in notes]
        for each in found:
            if each is None:
                raise NotProved("none of the keys that are believed signed the checkpoint")
        key, vouched = found[-1] or (VerifierKey("", b""), "")
        weakest = [who for _, who in filter(None, found) if who == NOBODY]
        return cls(origin, key, NOBODY if weakest else vouched, trust)

    def verdict(self, kind: str, said: str, size: int, note: Note, about: Mapping[str, Any]) -> Verdict:
        """Return the verdict on what was proved up to *note*."""
        named = {(key.name, key.id): key for key in self.trust.witnesses}
        seen = [(name, at) for (name, _), key in named.items() if (at := key.cosigned_at(note)) is not None]
        strangers = sum((each.name, each.id) not in {(self.key.name, self.key.id), *named} for each in note.signatures)
        witnessed = [(name, _time(at)) for name, at in seen]
        by = "; ".join(f"witnessed by {name} at {at}" for name, at in witnessed) or "unwitnessed"
        return Verdict(
            proved=True, said=f"{said} ({self.key.name}+{self.key.id}; {by})", kind=kind, origin=self.origin, size=size,
            key=str(self.key), vouched=self.vouched, witnessed=witnessed, strangers=strangers, about=about,
        )  # fmt: skip


def _vouched(changes: Sequence[Rotation], trust: Trust, origin: str) -> dict[VerifierKey, str]:
    """Return the keys that signed checkpoints may be of, each with who vouches for it.

    Where the reader names no key of this log, the proof's own are taken, and that is said. Where one is named, others
    count as far as it signed them, or one that it signed did.
    """
    named = {key: who for key, who in trust.keys.items() if key.name == origin}
    if not named:
        return dict.fromkeys((change.key for change in changes if change.origin == origin), NOBODY)
    ours = [change for change in changes if change.origin == origin]
    known = dict(named)
    for change in ours:
        if change.previous in known and change.key not in known and change.signed_by(change.previous):
            known[change.key] = f"{known[change.previous]}, and a change of keys that the key from there signed"
    for change in reversed(ours):
        if change.key in known and change.previous:
            known.setdefault(change.previous, f"{known[change.key]}, as the key before it")
    return known


def _path(said: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in said]


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"
