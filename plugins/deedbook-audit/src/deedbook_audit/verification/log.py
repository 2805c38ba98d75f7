"""The log of a workspace, read from its ledger: keys, leaves, checkpoints, witnesses, checked against the rules.

It shares only proofs and notes with the log's writer. It does not decide which keys to trust.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.format import canonical, events
from deedbook.format.checkpoints import Checkpoint, Frontier
from deedbook.format.errors import DeedbookError, FileRefused, SignatureError
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.notes import Note, VerifierKey, WitnessKey
from deedbook_audit.report import Findings
from deedbook_audit.transparency.cosignatures import cosigned_at
from deedbook_audit.transparency.merkle import MerkleTree, leaf_hash

from .headers import MAX_LINE

ORIGIN: Final = "deedbook/"
_OURS: Final = b',"event_type":"ledger.'
_FAR: Final = 400


@attrs.frozen
class Leaf:
    """A leaf of the log: the first *size* lines of a ledger, recorded in event *seq* of the workspace ledger."""

    seq: int
    session: str
    size: int
    head: str
    root: str
    peaks: tuple[str, ...]


@attrs.frozen
class Key:
    """A key of the log, in force after event *seq*; *is_endorsed*: the previous key signed it."""

    seq: int
    key: VerifierKey
    is_endorsed: bool


@attrs.frozen
class SignedCheckpoint:
    """A checkpoint of *size* leaves, in event *seq* at the time *ts*; *key* signed it, if the signature holds."""

    seq: int
    size: int
    ts: str
    key: VerifierKey | None


@attrs.frozen
class Cosignature:
    """The cosignature of *witness* on a checkpoint of *size* leaves; *time* is in seconds since 1970."""

    size: int
    witness: WitnessKey
    time: int


class Log:
    """The log of the workspace ledger *identity*, as far as it was read; *findings* are violations of its rules.

    *leaves* are by ledger, in order. *newest* is the last checkpoint whose signature holds. *events* counts lines.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.origin = f"{ORIGIN}{identity}"
        self.tree = MerkleTree()
        self.leaves: dict[str, list[Leaf]] = {}
        self.keys: list[Key] = []
        self.newest: SignedCheckpoint | None = None
        self.checkpoints = 0
        self.cosignatures: list[Cosignature] = []
        self.findings = Findings()
        self.events = 0
        self._sizes: dict[int, int] = {}
        self._seqs: list[int] = []
        self._frontier = Frontier()
        self._size = 0

    @property
    def size(self) -> int:
        """The number of leaves."""
        return self.tree.size

    def build_text(self, size: int) -> str:
        """Return the text of the log's checkpoint at *size* leaves."""
        return str(Checkpoint(self.origin, size, self.tree.root(size)))

    @property
    def checkpoint_size(self) -> int:
        """The number of leaves of the last checkpoint, with any signature; 0 if there is none."""
        return self._size

    def find_leaf_seq(self, size: int) -> int:
        """Return the number of the event that added leaf number *size*."""
        return self._seqs[size - 1] if size else 0

    def count_covered(self, session: str) -> int:
        """Return the number of lines of a ledger that the newest checkpoint covers."""
        most = self._seqs[self.newest.size - 1] if self.newest else -1
        return max((leaf.size for leaf in self.leaves.get(session, ()) if leaf.seq <= most), default=0)

    def find_key(self, note: Note) -> VerifierKey | None:
        """Return the key of this log that signed *note*; ``None`` if none did."""
        for known in reversed(self.keys):
            if note.is_signed_by(known.key):
                return known.key
        return None

    def apply(self, seq: int, kind: str, ts: str, payload: Mapping[str, Any]) -> None:
        """Apply the next event of the log."""
        take = {
            "ledger.leaf": self._leaf,
            "ledger.key": self._key,
            "ledger.checkpoint": self._checkpoint,
            "ledger.witnessed": self._cosignature,
        }[kind]
        for check, expected, found in take(seq, ts, payload):
            self.findings.add(seq + 1, check, expected, found)

    # --- events ------------------------------------------------------------------------------------------------------

    def _leaf(self, seq: int, _ts: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        leaf = Leaf(
            seq, payload["session_id"], payload["size"], payload["head"], payload["root"], tuple(payload["peaks"])
        )
        if not events.SESSION_ID.fullmatch(leaf.session) or type(leaf.size) is not int or leaf.size < 1:
            raise ValueError("it names no ledger, or no number of lines")
        if payload["index"] != self.size:
            yield "leaf", f"index {self.size}", str(payload["index"])
        own = self.leaves.setdefault(leaf.session, [])
        if own and leaf.size <= own[-1].size:
            yield "leaf", f"more lines of {leaf.session} than the {own[-1].size} of the leaf before", str(leaf.size)
        if leaf.session == self.identity and leaf.size > seq:
            yield "leaf", f"at most {seq} lines of this ledger, which stand before it", str(leaf.size)
        own.append(leaf)
        data = canonical.encode({name: payload[name] for name in ("head", "root", "session_id", "size")})
        self.tree.push(leaf_hash(data))
        self._frontier.push(leaf_hash(data))
        self._seqs.append(seq)

    def _key(self, seq: int, _ts: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        before = self.keys[-1].key if self.keys else None
        if payload["previous"] != (str(before) if before else None):
            yield "key", f"previous {before}", str(payload["previous"])
        try:
            key, note = VerifierKey.parse(payload["key"]), Note.parse(payload["signed"])
        except SignatureError as problem:
            yield "key", "a key of the log and a note that it signed", problem.error.message
            return
        text = f"deedbook log key v1\n{self.origin}\n{payload['key']}\n{payload['previous'] or '-'}\n"
        if note.text != text or key.name != self.origin:
            yield "key", f"a note of {text!r}", note.text
        if not note.is_signed_by(key):
            yield "key", "the signature of the new key", "none that holds"
        is_endorsed = before is not None and note.is_signed_by(before)
        if before is not None and not is_endorsed and not payload.get("lost"):
            yield "key", f"the signature of the key before, {before.id}, or that it is lost", "neither"
        self.keys.append(Key(seq, key, is_endorsed))

    def _checkpoint(self, seq: int, ts: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        peaks, root = tuple(peak.hex() for peak in self._frontier.peaks), self._frontier.root.hex()
        stated = payload["origin"], payload["size"], payload["root"], tuple(payload["peaks"])
        if stated != (self.origin, self.size, root, peaks):
            yield "checkpoint", f"{self.size} leaves with the root {root}", f"{payload['size']} with {payload['root']}"
            return
        if self.size <= self._size:
            yield "checkpoint", f"more than the {self._size} leaves of the one before", str(self.size)
        self._size = self.size
        self._sizes[self.size] = seq
        key = self.keys[-1].key if self.keys else None
        try:
            note = Note.parse(payload["note"])
        except SignatureError as problem:
            yield "checkpoint", "a signed note", problem.error.message
            return
        good = note.text == self.build_text(self.size) and key is not None and note.is_signed_by(key)
        if not good:
            yield "checkpoint", f"a note of this checkpoint, signed by {key.id if key else 'a key'}", "another"
        self.checkpoints += 1
        self.newest = SignedCheckpoint(seq, self.size, ts, key) if good else self.newest

    def _cosignature(self, _seq: int, _ts: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        size = payload["size"]
        try:
            key, note = WitnessKey.parse(payload["witness"]), Note.parse(payload["note"])
        except SignatureError as problem:
            yield "witnessed", "a witness's key and a note", problem.error.message
            return
        time = cosigned_at(key, note)
        if size not in self._sizes or note.text != self.build_text(size):
            yield "witnessed", f"the note of an earlier checkpoint of {size} leaves", note.text
        elif time is None:
            yield "witnessed", f"a cosignature of {key.name}", "none that holds"
        else:
            self.cosignatures.append(Cosignature(size, key, time))


def read_identity(state: Path) -> str | None:
    """Return the id of the workspace ledger of a *state* folder, from its first line; ``None`` without one."""
    try:
        with Folder.at(state / "workspace") as folder, folder.open(".events.jsonl") as file:
            first = next((events.HEADER.match(line) for line in Lines(file, MAX_LINE)), None)
    except (OSError, FileRefused):  # its own verification says what is wrong with it
        return None
    return first["session_id"].decode() if first else None


def read_log(state: Path) -> Log | None:
    """Read the log in the workspace ledger of a *state* folder; ``None`` without a readable first line.

    Invalid lines are skipped: the ledger's own verification reports them.
    """
    log: Log | None = None
    try:
        with Folder.at(state / "workspace") as folder, folder.open(".events.jsonl") as file:
            for seq, line in enumerate(Lines(file, MAX_LINE)):
                if log is None:
                    first = events.HEADER.match(line)
                    if first is None:
                        return None
                    log = Log(first["session_id"].decode())
                if _OURS in line[:_FAR]:
                    _apply_line(log, seq, line)
                log.events = seq + 1
    except (OSError, FileRefused):
        return None
    return log


_KINDS: Final = frozenset({b"ledger.leaf", b"ledger.key", b"ledger.checkpoint", b"ledger.witnessed"})


def _apply_line(log: Log, seq: int, line: bytes) -> None:
    found = events.HEADER.match(line)
    if found is None or found["event_type"] not in _KINDS:
        return
    kind = found["event_type"].decode()
    try:
        log.apply(seq, kind, found["ts"].decode(), canonical.decode(line[found.end() : -1]))
    except (DeedbookError, ValueError, TypeError, KeyError, AttributeError):
        log.findings.add(seq + 1, kind.partition(".")[2], f"what {kind} holds", line[found.end() : -1][:80])
