"""Imported old ledgers of a workspace: their bytes, and who imported them.

The workspace ledger has an event for each (``ledger.imported``); the bytes are in ``imported/<sha256>/`` of the state
folder, read-only. They are never rewritten: readers upcast the events. ``deedbook-legacy`` imports ledgers.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.format.files import Folder
from deedbook.format.reader import SessionSummary, read
from deedbook.format.sealed import open_values

FOLDER: Final = "imported"
FILE: Final = "events.jsonl"
PENDING: Final = "events.jsonl.pending"
"""The name of the file until the workspace ledger has its event."""
TOLD: Final = "ledger.imported"
Verdict: TypeAlias = Literal["sound", "unsound", "unhashed"]


@attrs.frozen
class ImportedLedger:
    """An imported old ledger: the content of its ``ledger.imported``, and the time of that event."""

    sha256: str
    size: int
    format: str
    sessions: tuple[SessionSummary, ...]
    name: str
    by: str
    verdict: Verdict
    ts: str
    as_is: str | None = None

    def place(self, state: Path) -> Path:
        """Return the path of its bytes in a *state* folder."""
        folder = state / FOLDER / self.sha256
        pending = folder / PENDING
        return pending if pending.exists() and not (folder / FILE).exists() else folder / FILE

    def session(self, state: Path, name: str) -> Path:
        """Return the path to read one of its sessions from."""
        place = self.place(state)
        return place if len(self.sessions) == 1 else Path(f"{place}#{name}")


def list_imports(state: Path) -> list[ImportedLedger]:
    """Return the imported ledgers of a *state* folder, in order; raises `LedgerError` as `read` does."""
    found: dict[str, ImportedLedger] = {}
    with suppress(FileNotFoundError), Folder.at(state / "workspace") as folder:
        for event in read(folder):
            if event.type == TOLD:
                each = _parse_import(open_values(folder, dict(event.payload)), event.ts)
                found.setdefault(each.sha256, each)
    return list(found.values())


def _parse_import(payload: dict[str, Any], ts: str) -> ImportedLedger:
    sessions = tuple(
        SessionSummary(each["session"], "ended" if each["ended"] else "interrupted", each["started"], each["latest"],
               each["events"]) for each in payload["sessions"]
    )  # fmt: skip
    names = ("sha256", "size", "format", "by", "verdict")
    return ImportedLedger(**{name: payload[name] for name in names}, sessions=sessions, name=payload["from"], ts=ts,
                    as_is=payload.get("as_is"))  # fmt: skip


def find(known: Sequence[ImportedLedger], name: str) -> list[tuple[ImportedLedger, SessionSummary]]:
    """Return the sessions for *name*: an id, or ``SHA256#ID``, where the hash may be abbreviated, or a beginning."""
    sha, sign, identity = name.partition("#")
    among = [each for each in known if each.sha256.startswith(sha)] if sign else known
    wanted = identity if sign else name
    pairs = [(each, session) for each in among for session in each.sessions]
    exact = [pair for pair in pairs if pair[1].id == wanted]
    return exact or [pair for pair in pairs if wanted and pair[1].id.startswith(wanted)]


def settle(state: Folder) -> None:
    """Give the files of recorded imports their final name, where a process died before that.

    Raises `LedgerError` as `list_imports` does.
    """
    pending = [name for name in _folders(state) if state.exists(f"{FOLDER}/{name}/{PENDING}")]
    if pending:
        digests = {each.sha256 for each in list_imports(Path(state.path))}
        for name in digests.intersection(pending):
            finish(state, name)


def _folders(state: Folder) -> list[str]:
    try:
        return [found.name for found in state.scan(FOLDER) if found.folder]
    except FileNotFoundError:
        return []


def finish(state: Folder, sha256: str) -> None:
    """Give the file of an old ledger its final name, after the workspace ledger has its event."""
    with suppress(FileNotFoundError), state.hold(f"{FOLDER}/{sha256}") as folder:
        os.rename(PENDING, FILE, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
