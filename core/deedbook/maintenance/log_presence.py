"""Detect whether a workspace has a log, so that every writer of its ledgers keeps the log up to date."""

import os
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.files import Folder
from deedbook.format.paths import CHECKPOINT_FILE, user_folder
from deedbook.ledger.ledger import WorkspaceLedger

FEATURE: Final = "checkpoints"
"""The feature that keeps a log."""
_LAST_LINES: Final = 64
_MARKS: Final = (b'"event_type":"ledger.checkpoint"', b'"event_type":"ledger.key"')


def has_log(state: Folder, ledger: WorkspaceLedger, settings: CheckpointSettings, *, last: int = _LAST_LINES) -> bool:
    """Return whether the workspace has a log: any trace is enough, so that removing one does not end it.

    Only the *last* lines of the ledger are checked.
    """
    if state.exists(CHECKPOINT_FILE) or (settings.key and settings.key.exists()):
        return True
    if any(mark in raw[:512] for _, raw in islice(ledger.backwards(), last) for mark in _MARKS):
        return True
    keys = user_folder(os.environ) / "keys"
    return keys.is_dir() and any(name.startswith(f"{ledger.session_id}.") for name in _key_names(keys))


def _key_names(place: Path) -> list[str]:
    from deedbook.approvals.keys import KeyRing

    return KeyRing(place).names()


class LogWatch:
    """Detects when a workspace gets a log; the ledger is checked once, its other traces every time."""

    def __init__(self, state: Folder, ledger: WorkspaceLedger, settings: CheckpointSettings) -> None:
        self._state, self._ledger, self._settings = state, ledger, settings
        self._lock = Lock()
        self._looked = self._found = False

    def is_present(self) -> bool:
        """Return whether there is a log now."""
        with self._lock:
            if not self._found:
                last = 0 if self._looked else _LAST_LINES
                self._found = has_log(self._state, self._ledger, self._settings, last=last)
                self._looked = True
            return self._found
