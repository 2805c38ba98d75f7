"""Builds proofs: that an event or a session is in the log, and that one checkpoint extends another.

`docs/proofs.md` describes the content of a proof, which is complete: it needs nothing else to be checked. If a
checkpoint and the lines differ, there is an error and no proof.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NoReturn

import attrs

from deedbook.format.canonical import decode, encode
from deedbook.format.checkpoints import Checkpoint
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Line, split_line
from deedbook.format.files import Folder
from deedbook.format.notes import Note, VerifierKey
from deedbook_audit.transparency.merkle import MerkleTree, leaf_hash

FILE: Final = ".events.jsonl"

_WORKSPACE: Final = f"workspace/{FILE}"
_OURS: Final = b'"event_type":"ledger.'
_MARK: Final = b',"envelope_hash":"'


@attrs.frozen
class LoggedCheckpoint:
    """A checkpoint of the log: its number of leaves, and its *note* with the known cosignatures."""

    size: int
    note: str
    witnessed: bool


class ProofLog:
    """The log of a workspace, read whole from the ledger in its *state* folder. Raises `LedgerError`, `OSError`."""

    def __init__(self, state: Folder) -> None:
        self.state = state
        self.leaves: list[Mapping[str, Any]] = []
        self.ledger = ""
        self._keys: list[Mapping[str, Any]] = []
        self._notes: dict[int, Note] = {}
        self._witnessed_sizes: set[int] = set()
        with state.open(_WORKSPACE) as file:
            for raw in file:
                if _OURS in raw[:512] and raw.endswith(b"\n"):
                    self._apply(split_line(raw, place=_WORKSPACE))
        self.tree = MerkleTree(map(_hash_leaf, self.leaves))

    @property
    def checkpoints(self) -> list[LoggedCheckpoint]:
        """All checkpoints, the largest last."""
        return [
            LoggedCheckpoint(size, str(note), size in self._witnessed_sizes)
            for size, note in sorted(self._notes.items())
        ]

    def root(self, size: int) -> bytes:
        """Return the root of the first *size* leaves; raises `LedgerError` if the checkpoint has another root."""
        checkpoint = Checkpoint.parse(self._notes[size].text)
        if size > self.tree.size or self.tree.root(size) != checkpoint.root:
            _raise_unsound(f"the checkpoint of {size} leaves is not of the leaves in the workspace ledger")
        return checkpoint.root

    def describe_keys(self, *notes: str) -> dict[str, Any]:
        """Return the part of a proof about keys: the log's origin and every change of its keys."""
        keys = [VerifierKey.parse(payload["key"]) for payload in self._keys]
        for note in map(Note.parse, notes):
            if not any(map(note.is_signed_by, keys)):
                _raise_unsound("no key that the workspace ledger names signed the checkpoint")
        origin = Checkpoint.parse(Note.parse(notes[0]).text).origin
        return {"origin": origin, "keys": [payload["signed"] for payload in self._keys]}

    def _apply(self, line: Line) -> None:
        self.ledger = line.session_id
        if line.event_type == "ledger.leaf":
            self.leaves.append(decode(line.payload))
        elif line.event_type == "ledger.key":
            self._keys.append(decode(line.payload))
        elif line.event_type == "ledger.checkpoint":
            payload = decode(line.payload)
            self._notes[payload["size"]] = Note.parse(payload["note"])
        elif line.event_type == "ledger.witnessed":
            self._apply_cosignature(decode(line.payload))

    def _apply_cosignature(self, payload: Mapping[str, Any]) -> None:
        known, note = self._notes.get(payload["size"]), Note.parse(payload["note"])
        if known and known.text == note.text:
            more = tuple(each for each in note.signatures if each not in known.signatures)
            self._notes[payload["size"]] = Note(known.text, (*known.signatures, *more))
            self._witnessed_sizes.add(payload["size"])


def prove_inclusion(state: Folder, session: str, seq: int | None = None) -> dict[str, Any]:
    """Return the proof that *session*, or its event *seq*, is in the log; ``workspace`` is the workspace ledger.

    It leads to the newest cosigned checkpoint, or to the newest one if none is cosigned. Raises `LedgerError` if no
    checkpoint covers it (``PROOF_UNAVAILABLE``), or if the files differ from what was signed (``LEDGER_UNSOUND``).
    """
    log = _read_log(state)
    session = log.ledger if session == "workspace" else session
    checkpoint, leaf = _find_covering(log, session, seq)
    tree, line = _build_ledger_tree(state, log, leaf, seq)
    if tree.size != leaf["size"] or tree.root().hex() != leaf["root"]:
        _raise_unsound(f"the first {leaf['size']} lines of {session} are not what the log says; verify it")
    log.root(checkpoint.size)
    event = None
    if seq is not None:
        event = {"seq": seq, "line": line, "path": [each.hex() for each in tree.inclusion(seq)]}
    payload = {name: leaf[name] for name in ("index", "session_id", "size", "head", "root")}
    path = [each.hex() for each in log.tree.inclusion(leaf["index"], checkpoint.size)]
    proof = {"schema_version": "v1", "kind": "inclusion", **log.describe_keys(checkpoint.note), "note": checkpoint.note}
    return {**proof, "leaf": payload, "path": path, **({"event": event} if event else {})}


def prove_consistency(state: Folder, old: str, new: str) -> dict[str, Any]:
    """Return the proof that the checkpoint *new* extends *old*.

    Each is a size, ``newest``, or the text of a signed note from elsewhere. Raises like `prove_inclusion`.
    """
    log = _read_log(state)
    first, second = _find_note(log, old), _find_note(log, new)
    sizes = [Checkpoint.parse(Note.parse(note).text).size for note in (first, second)]
    if not 0 <= sizes[0] <= sizes[1] <= log.tree.size:
        why = f"a checkpoint of {sizes[0]} leaves is no beginning of one of {sizes[1]}; the log has {log.tree.size}"
        raise LedgerError(fault("PROOF_UNAVAILABLE", why))
    for note, size in ((first, sizes[0]), (second, sizes[1])):
        if log.tree.root(size) != Checkpoint.parse(Note.parse(note).text).root:
            _raise_unsound(f"the log here has another root at {size} leaves than that checkpoint: it was written anew")
    path = [each.hex() for each in log.tree.consistency(*sizes)]
    proof = {"schema_version": "v1", "kind": "consistency", **log.describe_keys(first, second)}
    return {**proof, "old": first, "new": second, "path": path}


# --- helpers --------------------------------------------------------------------------------------------------------


def _read_log(state: Folder) -> ProofLog:
    try:
        log = ProofLog(state)
    except FileNotFoundError:
        raise LedgerError(fault("PROOF_UNAVAILABLE", "the workspace has no ledger yet")) from None
    if not log.checkpoints:
        how = "`deedbook keys rotate` makes the log's key, `deedbook ledger checkpoint` writes a checkpoint"
        raise LedgerError(fault("PROOF_UNAVAILABLE", f"the log has no checkpoint; {how}"))
    return log


def _find_covering(log: ProofLog, session: str, seq: int | None) -> tuple[LoggedCheckpoint, Mapping[str, Any]]:
    """Return a checkpoint that covers the event, and the newest leaf of the session in it."""
    leaves = [leaf for leaf in log.leaves if leaf["session_id"] == session and leaf["size"] > (seq or 0)]
    covering = [each for each in log.checkpoints if leaves and each.size > leaves[0]["index"]]
    if not covering:
        if seq is not None:
            _refuse_absent(log, session, seq)
        what = f"session {session}" if seq is None else f"event {seq} of session {session}"
        how = "`deedbook ledger checkpoint` writes one, if it is there"
        raise LedgerError(fault("PROOF_UNAVAILABLE", f"no checkpoint covers {what} yet; {how}"))
    checkpoint = next((each for each in reversed(covering) if each.witnessed), covering[-1])
    return checkpoint, next(leaf for leaf in reversed(leaves) if leaf["index"] < checkpoint.size)


def _refuse_absent(log: ProofLog, session: str, seq: int) -> None:
    place = _get_ledger_path(log, session)
    try:
        with log.state.open(place) as file:
            size = sum(raw.endswith(b"\n") for raw in file)
    except FileNotFoundError:
        return
    if seq >= size:
        raise LedgerError(fault("USAGE", f"there is no event {seq}: there are {size}, and the last is {size - 1}"))


def _get_ledger_path(log: ProofLog, session: str) -> str:
    return _WORKSPACE if session == log.ledger else f"sessions/{session}/{FILE}"


def _build_ledger_tree(
    state: Folder, log: ProofLog, leaf: Mapping[str, Any], seq: int | None
) -> tuple[MerkleTree, str]:
    """Return the tree of the lines that *leaf* covers, and the text of line *seq*."""
    session, wanted = leaf["session_id"], []
    place = _get_ledger_path(log, session)

    def hashes(file: Iterable[bytes]) -> Iterator[bytes]:
        for number, raw in enumerate(islice(file, leaf["size"])):
            if number == seq:
                wanted.append(raw.removesuffix(b"\n").decode())
            own = raw.partition(_MARK)[2][:64]
            yield leaf_hash(bytes.fromhex(own.decode()))

    try:
        with state.open(place) as file:
            return MerkleTree(hashes(file)), "".join(wanted)
    except FileNotFoundError:
        _raise_unsound(f"{place} is gone, and a checkpoint covers {leaf['size']} lines of it")
    except ValueError:
        _raise_unsound(f"{place} holds what is no line; verify it")


def _find_note(log: ProofLog, name: str) -> str:
    if "\n" in name:
        return str(Note.parse(name))
    checkpoints = log.checkpoints
    if name == "newest":
        return checkpoints[-1].note
    for each in checkpoints:
        if str(each.size) == name:
            return each.note
    sizes = ", ".join(str(each.size) for each in islice(reversed(checkpoints), 10))
    why = (
        f"there is no checkpoint of {name!r} leaves; the newest have {sizes}. `newest`, and a file with a note, do, too"
    )
    raise LedgerError(fault("PROOF_UNAVAILABLE", why))


def _hash_leaf(payload: Mapping[str, Any]) -> bytes:
    return leaf_hash(encode({name: payload[name] for name in ("head", "root", "session_id", "size")}))


def _raise_unsound(why: str) -> NoReturn:
    raise LedgerError(fault("LEDGER_UNSOUND", why))
