"""The operations on the log that a person asks for: a checkpoint of everything now, and a new key."""

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

from .announcer import Announcer
from .coverage import CoverageResult, cover_sessions
from .followers import list_followers
from .keys import LogKeys
from .log import WorkspaceLog
from .writer import CheckpointWriter, Why

WAIT_SECONDS: Final = 10.0
"""Seconds that a command waits for the followers of its checkpoint."""


@attrs.frozen
class CheckpointResult:
    """The result of a requested checkpoint: its *note*, with the signatures of witnesses that have answered.

    *failures* are those of the followers.
    """

    coverage: CoverageResult
    failures: tuple[DomainError, ...]
    note: str


@attrs.frozen
class RotationResult:
    """A new key of the log: its public half, the *previous* key, and the *place* of the private key.

    *is_previous_lost*: the previous key is lost and has not signed the change.
    """

    key: VerifierKey
    previous: VerifierKey | None
    is_previous_lost: bool
    place: Path
    checkpoint: CheckpointResult


class LogOperations:
    """The log in the workspace's *ledger*, for a command."""

    def __init__(self, state: Folder, ledger: WorkspaceLedger, settings: CheckpointSettings) -> None:
        self._state, self._ledger, self._settings = state, ledger, settings
        self._keys = LogKeys.of(ledger.session_id, settings.key)

    def write_checkpoint(self, why: Why = "asked") -> CheckpointResult:
        """Cover every session that grew since its last leaf; raises `LedgerError`, `SignatureError`."""
        with self._open_writer() as (writer, announcer, failures):
            coverage = cover_sessions(self._state, writer, why)
            announcer.wait(WAIT_SECONDS)
        return CheckpointResult(coverage, tuple(failures), self._find_cosigned(coverage.checkpoints[-1].note))

    def rotate_key(self, *, lost: bool) -> RotationResult:
        """Make a key and bring it into force, sign everything with it, and remove the previous key.

        With *lost*, the previous key may be missing. Raises `LedgerError`, `SignatureError`.
        """
        with self._open_writer() as (writer, _, _):
            change = writer.rotate(lost=lost)
        place = self._keys.activate(change.key)
        return RotationResult(
            change.key.public, change.previous, change.is_previous_lost, place, self.write_checkpoint("key")
        )

    def _find_cosigned(self, note: str) -> str:
        """Return *note* as the state folder has it now, if it is the newest there."""
        known = read_newest(self._state)
        return str(known.note) if known and known.note.text == Note.parse(note).text else note

    @contextmanager
    def _open_writer(self) -> Iterator[tuple[CheckpointWriter, Announcer, list[DomainError]]]:
        failures: list[DomainError] = []
        announcer = Announcer(list_followers(self._settings, self._state, self._ledger), failures.append)
        try:
            yield (
                CheckpointWriter(
                    self._state, self._ledger, self._keys, WorkspaceLog.read_whole(self._ledger), announcer
                ),
                announcer,
                failures,
            )
        finally:
            announcer.close()
