"""Checks a proof: it reads only the proof, and the keys that the reader trusts.

It shares RFC 9162's checks with the kernel, and nothing with the module that makes proofs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import attrs

from deedbook.format import events
from deedbook.format.canonical import encode
from deedbook.format.checkpoints import Checkpoint, Frontier
from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.notes import Note, VerifierKey, WitnessKey
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.merkle import includes, is_consistent, leaf_hash
from deedbook_audit.transparency.rotation import Rotation

UNTRUSTED: Final = "the proof alone"


class NotProved(Exception):  # noqa: N818 - the verdict's own words
    """The proof does not prove its claim; the text says why."""


@attrs.frozen
class ProofTrust:
    """The reader's trust: *keys* of logs with the source of each, and keys of *witnesses*."""

    keys: Mapping[VerifierKey, str] = attrs.field(factory=dict)
    witnesses: Sequence[WitnessKey] = ()


@attrs.frozen(kw_only=True)
class ProofVerdict:
    """The result of checking a proof. *summary* is the first line; *vouched* is the source of the log's *key*.

    *witnessed* holds the names of trusted witnesses and the time of each cosignature; *strangers* counts signatures by
    keys that the reader did not name.
    """

    proved: bool
    summary: str
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
        yield self.summary
        if not self.proved:
            return
        if self.vouched == UNTRUSTED:
            how = "hold it against one that you were given, or name that with --log-key"
            yield f"only the proof itself vouches for the key; {how}: {self.key}"
        else:
            yield f"the key is known from {self.vouched}: {self.key}"
        if "more" in self.about:
            yield f"the ledger here begins with these {self.about['events']} events, and has {self.about['more']} more"
        if self.strangers:
            count = "1 more signature is" if self.strangers == 1 else f"{self.strangers} more signatures are"
            yield f"{count} by keys that are not named here; --witness-key names a witness"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON."""
        members = attrs.asdict(self, filter=lambda field, _: field.name not in {"summary", "witnessed", "about"})
        seen = [{"witness": name, "at": at} for name, at in self.witnessed]
        return {"schema_version": "v1", "verdict": self.summary, **members, "witnessed": seen, **self.about}


def judge_proof(proof: Mapping[str, Any], trust: ProofTrust) -> ProofVerdict:
    """Check a *proof* that matches ``output_proof_v1``; never raises."""
    try:
        return _check_inclusion(proof, trust) if proof["kind"] == "inclusion" else _check_consistency(proof, trust)
    except NotProved as problem:
        return ProofVerdict(proved=False, summary=f"NOT PROVED: {problem}", kind=str(proof.get("kind")))
    except KeyError as problem:
        return ProofVerdict(
            proved=False, summary=f"NOT PROVED: it has no {problem.args[0]!r}", kind=str(proof.get("kind"))
        )
    except (DeedbookError, ValueError) as problem:
        return ProofVerdict(proved=False, summary=f"NOT PROVED: {problem}", kind=str(proof.get("kind")))


def compare_ledger(verdict: ProofVerdict, lines: Iterable[bytes]) -> ProofVerdict:
    """Compare a ledger's *lines* with a proof: the ledger has to begin with the events of the leaf."""
    if not verdict.proved or verdict.kind != "inclusion":
        return verdict
    tree, size, more = Frontier(), verdict.about["events"], 0
    for line in lines:
        if tree.size == size:
            more += 1
            continue
        tree.push(_hash_line(line))
    if (tree.size, tree.root.hex()) != (size, verdict.about["root"]):
        why = f"the ledger here does not begin with the {size} events that the proof is about"
        return ProofVerdict(proved=False, summary=f"NOT PROVED: {why}", kind=verdict.kind)
    return attrs.evolve(verdict, about={**verdict.about, "more": more})


def _hash_line(raw: bytes) -> bytes:
    """Return the hash of a line in its ledger's tree; of an unsound line, a value that no tree has."""
    try:
        line = events.split_line(raw)
    except LedgerError:
        return b""
    excised = (
        line.payload == events.excised_form(line.payload_hash) and sha256(line.header).hexdigest() == line.envelope_hash
    )
    return leaf_hash(bytes.fromhex(line.envelope_hash)) if line.sound or excised else b""


def _check_inclusion(proof: Mapping[str, Any], trust: ProofTrust) -> ProofVerdict:
    note, leaf, event = Note.parse(proof["note"]), proof["leaf"], proof.get("event")
    signed = _ProofSigner.check(proof, [note], trust)
    members = {name: leaf[name] for name in ("head", "root", "session_id", "size")}
    log = Checkpoint.parse(note.text)
    if not includes(log.root, log.size, leaf["index"], leaf_hash(encode(members)), _decode_path(proof["path"])):
        raise NotProved(f"leaf {leaf['index']} does not stand in the log of {log.size} leaves")
    what = f"the first {leaf['size']} events of session {leaf['session_id']}"
    about = {"session": leaf["session_id"], "events": leaf["size"], "head": leaf["head"], "root": leaf["root"]}
    if event:
        kind, ts, excised = _check_event(event, leaf)
        what = f"event {event['seq']} ({kind}, {ts}) of session {leaf['session_id']}"
        what += ", whose payload was taken out of its line," if excised else ""
        about |= {"seq": event["seq"], "event_type": kind, "ts": ts, "excised": excised}
    return signed.build_verdict("inclusion", f"PROVED: {what} included in checkpoint {log.size}", log.size, note, about)


def _check_consistency(proof: Mapping[str, Any], trust: ProofTrust) -> ProofVerdict:
    notes = [Note.parse(proof["old"]), Note.parse(proof["new"])]
    signed = _ProofSigner.check(proof, notes, trust)
    old, new = (Checkpoint.parse(note.text) for note in notes)
    if not is_consistent(old.size, old.root, new.size, new.root, _decode_path(proof["path"])):
        raise NotProved(f"the log of {new.size} leaves does not go on from that of {old.size}: one of them was changed")
    summary = f"PROVED: checkpoint {new.size} goes on from checkpoint {old.size}, nothing was changed or taken away"
    return signed.build_verdict("consistency", summary, new.size, notes[1], {"old_size": old.size})


def _check_event(event: Mapping[str, Any], leaf: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Check that the line is in the ledger of *leaf*; return its type, its time, and whether it was excised."""
    line = events.split_line(event["line"].encode())
    if sha256(line.header).hexdigest() != line.envelope_hash:
        raise NotProved("the line's header is not what its envelope_hash says")
    excised = line.payload == events.excised_form(line.payload_hash)
    if not excised and sha256(line.payload).hexdigest() != line.payload_hash:
        raise NotProved("the line's payload is not what its payload_hash says")
    if (line.session_id, line.seq) != (leaf["session_id"], event["seq"]):
        raise NotProved(f"the line is event {line.seq} of session {line.session_id}, which the proof is not about")
    own, path = leaf_hash(bytes.fromhex(line.envelope_hash)), _decode_path(event["path"])
    if not includes(bytes.fromhex(leaf["root"]), leaf["size"], line.seq, own, path):
        raise NotProved(f"event {line.seq} does not stand among the {leaf['size']} events of its session")
    if line.seq == leaf["size"] - 1 and line.envelope_hash != leaf["head"]:
        raise NotProved("the leaf names another last event")
    return line.event_type, line.ts, excised


@attrs.frozen
class _ProofSigner:
    """The key that signed the notes of a proof, and the source of the trust in it."""

    origin: str
    key: VerifierKey
    vouched: str
    trust: ProofTrust

    @classmethod
    def check(cls, proof: Mapping[str, Any], notes: Sequence[Note], trust: ProofTrust) -> "_ProofSigner":
        """Check that keys of the log signed all *notes*; a key counts by its own source, or a neighbouring key's."""
        origin = proof["origin"]
        if any(Checkpoint.parse(note.text).origin != origin for note in notes):
            raise NotProved("its checkpoints are of another log than it says")
        known = _find_trusted_keys([Rotation.parse(Note.parse(each)) for each in proof["keys"]], trust, origin)
        found = [next(((key, who) for key, who in known.items() if note.is_signed_by(key)), None) for note in notes]
        for each in found:
            if each is None:
                raise NotProved("none of the keys that are believed signed the checkpoint")
        key, vouched = found[-1] or (VerifierKey("", b""), "")
        weakest = [who for _, who in filter(None, found) if who == UNTRUSTED]
        return cls(origin, key, UNTRUSTED if weakest else vouched, trust)

    def build_verdict(self, kind: str, summary: str, size: int, note: Note, about: Mapping[str, Any]) -> ProofVerdict:
        """Return the verdict on a proof up to *note*."""
        named = {(key.name, key.id): key for key in self.trust.witnesses}
        seen = [(name, at) for (name, _), key in named.items() if (at := cosigned_at(key, note)) is not None]
        strangers = sum((each.name, each.id) not in {(self.key.name, self.key.id), *named} for each in note.signatures)
        witnessed = [(name, _format_time(at)) for name, at in seen]
        by = "; ".join(f"witnessed by {name} at {at}" for name, at in witnessed) or "unwitnessed"
        return ProofVerdict(
            proved=True, summary=f"{summary} ({self.key.name}+{self.key.id}; {by})", kind=kind, origin=self.origin,
            size=size, key=str(self.key), vouched=self.vouched, witnessed=witnessed, strangers=strangers,
            about=about,
        )  # fmt: skip


def _find_trusted_keys(changes: Sequence[Rotation], trust: ProofTrust, origin: str) -> dict[VerifierKey, str]:
    """Return the keys that may sign checkpoints, each with its source.

    If the reader names no key of this log, the proof's own keys are used, and the verdict says so. Otherwise other keys
    count if a trusted key signed them, directly or through other keys.
    """
    named = {key: who for key, who in trust.keys.items() if key.name == origin}
    if not named:
        return dict.fromkeys((change.key for change in changes if change.origin == origin), UNTRUSTED)
    ours = [change for change in changes if change.origin == origin]
    known = dict(named)
    for change in ours:
        if change.previous in known and change.key not in known and change.is_signed_by(change.previous):
            known[change.key] = f"{known[change.previous]}, and a change of keys that the key from there signed"
    for change in reversed(ours):
        if change.key in known and change.previous:
            known.setdefault(change.previous, f"{known[change.key]}, as the key before it")
    return known


def _decode_path(summary: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in summary]


def _format_time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"
