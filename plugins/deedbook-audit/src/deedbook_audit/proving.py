"""Making proofs: that an event or a session stands in the log, and that the log of one checkpoint goes on to another.

What a proof holds is `docs/proofs.md`'s business; everything that is needed to check it is in it. Nothing is proved
that the files do not come to: where a checkpoint and the lines differ, that is said instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NoReturn

import attrs

from deedbook.format.canonical import decode, encode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Line, split_line
from deedbook.format.files import Folder
from deedbook.format.notes import Note, VerifierKey
from deedbook.format.proofs import Checkpoint, MerkleTree, leaf_hash

FILE: Final = ".events.jsonl"

_WORKSPACE: Final = f"workspace/{FILE}"
_OURS: Final = b'"event_type":"ledger.'
_MARK: Final = b',"envelope_hash":"'


@attrs.frozen
class Signed:
    """A checkpoint of the log: how many leaves it had, and its *note*, with the cosignatures that are known."""

    size: int
    note: str
    witnessed: bool


class Log:
    """The log of a workspace, read whole from the ledger in its *state* folder. Raises `LedgerError`, `OSError`."""

    def __init__(self, state: Folder) -> None:
        self.state = state
        self.leaves: list[Mapping[str, Any]] = []
        self.ledger = ""
        self._keys: list[Mapping[str, Any]] = []
        self._notes: dict[int, Note] = {}
        self._seen: set[int] = set()
        with state.open(_WORKSPACE) as file:
            for raw in file:
                if _OURS in raw[:512] and raw.endswith(b"\n"):
                    self._take(split_line(raw, place=_WORKSPACE))
        self.tree = MerkleTree(map(_leaf, self.leaves))

    @property
    def checkpoints(self) -> list[Signed]:
        """All checkpoints, the largest last."""
        return [Signed(size, str(note), size in self._seen) for size, note in sorted(self._notes.items())]

    def root(self, size: int) -> bytes:
        """Return the root that the first *size* leaves come to; raises `LedgerError` if the checkpoint says another."""
        signed = Checkpoint.parse(self._notes[size].text)
        if size > self.tree.size or self.tree.root(size) != signed.root:
            _unsound(f"the checkpoint of {size} leaves is not of the leaves in the workspace ledger")
        return signed.root

    def speaking(self, *notes: str) -> dict[str, Any]:
        """Return what a proof says of the keys: the one that signed each of *notes*, and every change of keys."""
        keys = [VerifierKey.parse(told["key"]) for told in self._keys]
        for note in map(Note.parse, notes):
            if not any(map(note.signed_by, keys)):
                _unsound("no key that the workspace ledger names signed the checkpoint")
        origin = Checkpoint.parse(Note.parse(notes[0]).text).origin
        return {"origin": origin, "keys": [told["signed"] for told in self._keys]}

    def _take(self, line: Line) -> None:
        self.ledger = line.session_id
        if line.event_type == "ledger.leaf":
            self.leaves.append(decode(line.payload))
        elif line.event_type == "ledger.key":
            self._keys.append(decode(line.payload))
        elif line.event_type == "ledger.checkpoint":
            told = decode(line.payload)
            self._notes[told["size"]] = Note.parse(told["note"])
        elif line.event_type == "ledger.witnessed":
            self._witnessed(decode(line.payload))

    def _witnessed(self, told: Mapping[str, Any]) -> None:
        known, note = self._notes.get(told["size"]), Note.parse(told["note"])
        if known and known.text == note.text:
            more = tuple(each for each in note.signatures if each not in known.signatures)
            self._notes[told["size"]] = Note(known.text, (*known.signatures, *more))
            self._seen.add(told["size"])


def inclusion(state: Folder, session: str, seq: int | None = None) -> dict[str, Any]:
    """Return the proof that *session*, or its event *seq*, stands in the log; ``workspace`` is the workspace ledger.

    It leads to the newest checkpoint that a witness has cosigned, or to the newest where none has. Raises `LedgerError`
    where no checkpoint covers it (``PROOF_UNAVAILABLE``), or the files are not what was signed (``LEDGER_UNSOUND``).
    """
    log = _log(state)
    session = log.ledger if session == "workspace" else session
    signed, leaf = _covering(log, session, seq)
    tree, line = _grown(state, log, leaf, seq)
    if tree.size != leaf["size"] or tree.root().hex() != leaf["root"]:
        _unsound(f"the first {leaf['size']} lines of {session} are not what the log says; verify it")
    log.root(signed.size)
    event = None
    if seq is not None:
        event = {"seq": seq, "line": line, "path": [each.hex() for each in tree.inclusion(seq)]}
    told = {name: leaf[name] for name in ("index", "session_id", "size", "head", "root")}
    path = [each.hex() for each in log.tree.inclusion(leaf["index"], signed.size)]
    said = {"schema_version": "v1", "kind": "inclusion", **log.speaking(signed.note), "note": signed.note}
    return {**said, "leaf": told, "path": path, **({"event": event} if event else {})}


def consistency(state: Folder, old: str, new: str) -> dict[str, Any]:
    """Return the proof that the checkpoint *old* is the beginning of *new*.

    Each is a size, ``newest``, or the text of a signed note, which somebody may have kept elsewhere. Raises as
    `inclusion` does.
    """
    log = _log(state)
    first, second = _named(log, old), _named(log, new)
    sizes = [Checkpoint.parse(Note.parse(note).text).size for note in (first, second)]
    if not 0 <= sizes[0] <= sizes[1] <= log.tree.size:
        why = f"a checkpoint of {sizes[0]} leaves is no beginning of one of {sizes[1]}; the log has {log.tree.size}"
        raise LedgerError(fault("PROOF_UNAVAILABLE", why))
    for note, size in ((first, sizes[0]), (second, sizes[1])):
        if log.tree.root(size) != Checkpoint.parse(Note.parse(note).text).root:
            _unsound(f"the log here has another root at {size} leaves than that checkpoint: it was written anew")
    path = [each.hex() for each in log.tree.consistency(*sizes)]
    said = {"schema_version": "v1", "kind": "consistency", **log.speaking(first, second)}
    return {**said, "old": first, "new": second, "path": path}


# --- parts ------------------------------------------------------------------------------------------------------------


def _log(state: Folder) -> Log:
    try:
        log = Log(state)
    except FileNotFoundError:
        raise LedgerError(fault("PROOF_UNAVAILABLE", "the workspace has no ledger yet")) from None
    if not log.checkpoints:
        how = "`deedbook keys rotate` makes the log's key, `deedbook ledger checkpoint` writes a checkpoint"
        raise LedgerError(fault("PROOF_UNAVAILABLE", f"the log has no checkpoint; {how}"))
    return log


def _covering(log: Log, session: str, seq: int | None) -> tuple[Signed, Mapping[str, Any]]:
    """Return a checkpoint that covers the event, and the newest leaf of the session in it."""
    leaves = [leaf for leaf in log.leaves if leaf["session_id"] == session and leaf["size"] > (seq or 0)]
    fitting = [each for each in log.checkpoints if leaves and each.size > leaves[0]["index"]]
    if not fitting:
        if seq is not None:
            _refuse_absent(log, session, seq)
        what = f"session {session}" if seq is None else f"event {seq} of session {session}"
        how = "`deedbook ledger checkpoint` writes one, if it is there"
        raise LedgerError(fault("PROOF_UNAVAILABLE", f"no checkpoint covers {what} yet; {how}"))
    signed = next((each for each in reversed(fitting) if each.witnessed), fitting[-1])
    return signed, next(leaf for leaf in reversed(leaves) if leaf["index"] < signed.size)


def _refuse_absent(log: Log, session: str, seq: int) -> None:
    place = _place(log, session)
    try:
        with log.state.open(place) as file:
            size = sum(raw.endswith(b"\n") for raw in file)
    except FileNotFoundError:
        return
    if seq >= size:
        raise LedgerError(fault("USAGE", f"there is no event {seq}: there are {size}, and the last is {size - 1}"))


def _place(log: Log, session: str) -> str:
    return _WORKSPACE if session == log.ledger else f"sessions/{session}/{FILE}"


def _grown(state: Folder, log: Log, leaf: Mapping[str, Any], seq: int | None) -> tuple[MerkleTree, str]:
    """Return the tree of the lines that *leaf* is about, and the text of line *seq*."""
    session, wanted = leaf["session_id"], []
    place = _place(log, session)

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
        _unsound(f"{place} is gone, and a checkpoint covers {leaf['size']} lines of it")
    except ValueError:
        _unsound(f"{place} holds what is no line; verify it")


def _named(log: Log, name: str) -> str:
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


def _leaf(told: Mapping[str, Any]) -> bytes:
    return leaf_hash(encode({name: told[name] for name in ("head", "root", "session_id", "size")}))


def _unsound(why: str) -> NoReturn:
    raise LedgerError(fault("LEDGER_UNSOUND", why))
