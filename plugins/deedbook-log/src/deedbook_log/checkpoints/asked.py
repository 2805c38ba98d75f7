"""What a person asks of the log: a checkpoint of everything now, and another key."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.errors import DomainError
from deedbook.format.files import Folder
from deedbook.format.notes import Note, VerifierKey
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.ledger.newest import read_newest

from .announcing import Announcer
from .coverage import Covered, cover
from .followers import followers
from .keys import LogKeys
from .log import Log
from .writer import Why, Writer

ASK_SECONDS: Final = 10.0
"""How long a command waits for those who are told of its checkpoint."""


@attrs.frozen
class Asked:
    """What came of a checkpoint that was asked for: its *note*, with the signatures of witnesses that have answered.

    *unheard* is what those who are told of it could not do.
    """

    covered: Covered
    unheard: tuple[DomainError, ...]
    note: str


@attrs.frozen
class Rotated:
    """A new key of the log: its public half, the one *before*, if that is *lost*, and *where* the private one is."""

    key: VerifierKey
    before: VerifierKey | None
    lost: bool
    where: Path
    asked: Asked


class Office:
    """The log in the workspace's *ledger*, for a command."""

    def __init__(self, state: Folder, ledger: WorkspaceLedger, settings: CheckpointSettings) -> None:
        self._state, self._ledger, self._settings = state, ledger, settings
        self._keys = LogKeys.of(ledger.session_id, settings.key)

    def checkpoint(self, why: Why = "asked") -> Asked:
        """Cover every session that grew since its last leaf; raises `LedgerError`, `SignatureError`."""
        with self._writer() as (writer, announcer, unheard):
            covered = cover(self._state, writer, why)
            announcer.settle(ASK_SECONDS)
        return Asked(covered, tuple(unheard), self._cosigned(covered.made[-1].note))

    def rotate(self, *, lost: bool) -> Rotated:
        """Make a key and bring it into force, sign everything with it, and remove the one before.

        With *lost* that one need not be here. Raises `LedgerError`, `SignatureError`.
        """
        with self._writer() as (writer, _, _):
            change = writer.rotate(lost=lost)
        where = self._keys.settle(change.key)
        return Rotated(change.key.public, change.before, change.lost, where, self.checkpoint("key"))

    def _cosigned(self, note: str) -> str:
        """Return *note* as the state folder has it by now, where that is its newest."""
        known = read_newest(self._state)
        return str(known.note) if known and known.note.text == Note.parse(note).text else note

    @contextmanager
    def _writer(self) -> Iterator[tuple[Writer, Announcer, list[DomainError]]]:
        unheard: list[DomainError] = []
        announcer = Announcer(followers(self._settings, self._state, self._ledger), unheard.append)
        try:
            yield Writer(self._state, self._ledger, self._keys, Log.whole(self._ledger), announcer), announcer, unheard
        finally:
            announcer.close()
