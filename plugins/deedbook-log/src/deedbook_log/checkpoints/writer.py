"""Writes checkpoints: the leaves of grown sessions and the signed state of the log, as one append under the lock."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Final, Literal, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import encode
from deedbook.format.checkpoints import CHECKPOINT, Checkpoint, Frontier, SignedCheckpoint
from deedbook.format.errors import DeedbookError, LedgerError, SignatureError, fault
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.notes import SigningKey, VerifierKey, sign
from deedbook.ledger.ledger import WorkspaceLedger

from .keys import LogKeys, build_key_payload
from .leaves import KEY, LEAF, Leaf, encode_peaks
from .log import WorkspaceLog
from .newest import update_newest
from .trees import SessionTree

Why: TypeAlias = Literal["session_end", "events", "seconds", "irreversible", "asked", "key"]
MAX_SESSIONS: Final = 5000
"""The largest number of sessions in one append; a torn append is read as a whole, so more sessions need several."""

SAVED_LATER: Final = frozenset({"irreversible", "events", "seconds"})
"""Checkpoints that the keeper saves to their file later, because a call waits or more come soon."""


@attrs.frozen
class NewCheckpoint:
    """A written checkpoint: the log's *size*, its *note*, the reason *why*, and the number of grown *sessions*."""

    size: int
    note: str
    why: Why
    sessions: int


@attrs.frozen
class KeyChange:
    """A new *key* of the log, the *previous* one, and whether that is lost and has not signed."""

    key: SigningKey
    previous: VerifierKey | None
    is_previous_lost: bool


class CheckpointWriter:
    """Writes the checkpoints of one process into the workspace's *ledger*, signed with the key in force.

    *on_written* is called with every checkpoint after it is durable. Safe in threads; *log* is read from then on.
    """

    def __init__(
        self,
        state: Folder,
        ledger: WorkspaceLedger,
        keys: LogKeys,
        log: WorkspaceLog,
        on_written: Callable[[NewCheckpoint], None],
    ) -> None:
        self.log = log
        self._state, self._ledger, self._keys, self._on_written = state, ledger, keys, on_written
        self._key: SigningKey | None = None
        self._signer = ""
        self._lock = Lock()
        self._wanted: dict[str, tuple[SessionTree, Callable[[SessionTree], None]]] = {}
        self._last: NewCheckpoint | None = None
        self._unsaved: NewCheckpoint | None = None

    def follow(self, track: SessionTree) -> None:
        """Follow the leaves that other processes write of this session; before its first line is written."""
        self.log.leaves.setdefault(track.session, None)

    def forget(self, session: str) -> None:
        """Stop following a session that has ended."""
        self.log.leaves.pop(session, None)

    def add(self, track: SessionTree, advance: Callable[[SessionTree], None]) -> None:
        """Let the next checkpoint of this process also cover this session, as far as *advance* reads it."""
        self._wanted[track.session] = track, advance

    def cover(self, why: Why, track: SessionTree, size: int, advance: Callable[[SessionTree], None]) -> NewCheckpoint:
        """Cover the first *size* lines of a session; of several waiting threads one writes for all.

        *advance* reads the new lines, durably. Raises `LedgerError`, `SignatureError`, `OSError`.
        """
        self.add(track, advance)
        with self._lock:
            if self._last is not None and track.covered >= size:
                return self._last
            wanted, self._wanted = self._wanted, {}
            wanted.pop(track.session, None)
            advance(track)
            return self._write(why, [track, *_advance_all(wanted.values())])

    def write(self, why: Why, tracks: Collection[SessionTree]) -> NewCheckpoint:
        """Write a checkpoint with leaves of *tracks*, as far as they have grown; raises like `cover`."""
        with self._lock:
            return self._write(why, tracks)

    def rotate(self, *, lost: bool) -> KeyChange:
        """Make a new key of the log and bring it into force; raises `LedgerError`, `SignatureError`.

        With *lost*, the previous key may be missing. The caller has to call `LogKeys.activate` afterwards.
        """
        made: list[KeyChange] = []

        def build() -> list[Entry]:
            self.log.catch_up()
            previous = VerifierKey.parse(self.log.signer) if self.log.signer else None
            old = self._load_previous(lost=lost) if previous else None
            change = KeyChange(SigningKey.generate(self._keys.origin), previous, bool(previous and not old))
            self._keys.keep(change.key)
            made.append(change)
            return [self._build_entry(KEY, build_key_payload(self._keys.origin, change.key, previous, old))]

        with self._lock:
            self._ledger.append(build, durable=True)
        return made[0]

    def _load_previous(self, *, lost: bool) -> SigningKey | None:
        try:
            return self._keys.load_signing_key(self.log)
        except SignatureError:
            if lost:
                return None
            raise

    def _write(self, why: Why, tracks: Iterable[SessionTree]) -> NewCheckpoint:
        made: list[NewCheckpoint] = []
        sizes = {track.session: (track, track.tree.size) for track in tracks}

        def build() -> list[Entry]:
            entries, checkpoint = self._build_entries(why, [track for track, _ in sizes.values()])
            made.append(checkpoint)
            return entries

        self._ledger.append(build, durable=True)
        for track, size in sizes.values():
            track.covered = max(track.covered, size)
        self._last = self._unsaved = made[0]
        if why not in SAVED_LATER:
            self.save_newest()
        self._on_written(made[0])
        return made[0]

    def save_newest(self) -> None:
        """Save the newest checkpoint to its file, unless it is there; raises `LedgerError`, `OSError`."""
        if (checkpoint := self._unsaved) is not None:
            with self._ledger.exclusive():
                update_newest(self._state, checkpoint.note)
            if self._unsaved is checkpoint:
                self._unsaved = None

    def _build_entries(self, why: Why, tracks: Iterable[SessionTree]) -> tuple[list[Entry], NewCheckpoint]:
        """Return a checkpoint and the leaves before it; the caller holds the workspace ledger's lock."""
        log, ledger = self.log, self._ledger
        log.catch_up()
        if (log.own.tree.size, log.own.head) != (ledger.size, ledger.head):
            raise LedgerError(fault("LEDGER_UNSOUND", "it is not what was written; verify it", place=ledger.place))
        key = self._load_key()
        tree = Frontier(log.tree.size, log.tree.peaks)
        leaves = [Leaf.of(tree.size, ledger.session_id, log.own.tree, log.own.head)]
        for track in tracks:
            known = log.leaves.get(track.session)
            if track.tree.size > (known.size if known else 0):
                leaves.append(Leaf.of(tree.size + len(leaves), track.session, track.tree, track.head))
        for leaf in leaves:
            tree.push(leaf.hash)
        note = str(sign(str(Checkpoint(self._keys.origin, tree.size, tree.root)), [key]))
        signed = SignedCheckpoint(tree.size, tree.root.hex(), encode_peaks(tree.peaks), note)
        entries = [self._build_entry(LEAF, leaf.payload()) for leaf in leaves]
        entries.append(self._build_entry(CHECKPOINT, signed.payload(self._keys.origin, why)))
        return entries, NewCheckpoint(tree.size, note, why, len(leaves) - 1)

    def _load_key(self) -> SigningKey:
        """Return the key in force; it is loaded again after another process has changed it."""
        if self._key is None or self._signer != self.log.signer:
            self._key, self._signer = self._keys.load_signing_key(self.log), self.log.signer
        return self._key

    def _build_entry(self, event_type: str, payload: Object) -> Entry:
        ledger = self._ledger
        return Entry(label(event_type, "runtime", None), ledger.span(), ledger.root, encode(dict(payload)))


def _advance_all(waiting: Iterable[tuple[SessionTree, Callable[[SessionTree], None]]]) -> Iterator[SessionTree]:
    """Yield the other waiting sessions, read on; an unreadable one is left to its own thread."""
    for track, advance in waiting:
        with suppress(DeedbookError, OSError):
            advance(track)
            yield track
