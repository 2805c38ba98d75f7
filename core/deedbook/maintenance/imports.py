"""Old ledgers that were taken into a workspace: where their bytes are, and who took them in.

The workspace ledger tells of each (``ledger.imported``); the bytes lie in ``imported/<sha256>/`` of the state folder,
read-only. They are never rewritten: readers get present events. ``deedbook-legacy`` takes ledgers in.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.format.files import Folder
from deedbook.format.reader import Listed, read
from deedbook.format.sealed import opened

FOLDER: Final = "imported"
FILE: Final = "events.jsonl"
PENDING: Final = "events.jsonl.pending"
"""What the bytes are called until the workspace ledger tells of them."""
TOLD: Final = "ledger.imported"
Verdict: TypeAlias = Literal["sound", "unsound", "unhashed"]


@attrs.frozen
class Imported:
    """An old ledger that was taken in: what its ``ledger.imported`` says, and when that was written."""

    sha256: str
    size: int
    format: str
    sessions: tuple[Listed, ...]
    name: str
    by: str
    verdict: Verdict
    ts: str
    as_is: str | None = None

    def place(self, state: Path) -> Path:
        """Return where its bytes are in a *state* folder."""
        folder = state / FOLDER / self.sha256
        pending = folder / PENDING
        return pending if pending.exists() and not (folder / FILE).exists() else folder / FILE

    def session(self, state: Path, name: str) -> Path:
        """Return where one of its sessions is read from."""
        place = self.place(state)
        return place if len(self.sessions) == 1 else Path(f"{place}#{name}")


def imports(state: Path) -> list[Imported]:
    """Return the old ledgers that were taken into a *state* folder, in order; raises `LedgerError` as `read` does."""
    found: dict[str, Imported] = {}
    with suppress(FileNotFoundError), Folder.at(state / "workspace") as folder:
        for event in read(folder):
            if event.type == TOLD:
                each = _imported(opened(folder, dict(event.payload)), event.ts)
                found.setdefault(each.sha256, each)
    return list(found.values())


def _imported(said: dict[str, Any], ts: str) -> Imported:
    sessions = tuple(
        Listed(each["session"], "ended" if each["ended"] else "interrupted", each["started"], each["latest"],
               each["events"]) for each in said["sessions"]
    )  # fmt: skip
    names = ("sha256", "size", "format", "by", "verdict")
    return Imported(**{name: said[name] for name in names}, sessions=sessions, name=said["from"], ts=ts,
                    as_is=said.get("as_is"))  # fmt: skip


def find(known: Sequence[Imported], name: str) -> list[tuple[Imported, Listed]]:
    """Return the sessions that *name* is, or else begins: an id, or ``SHA256#ID``, where the hash may be cut short."""
    sha, sign, identity = name.partition("#")
    among = [each for each in known if each.sha256.startswith(sha)] if sign else known
    wanted = identity if sign else name
    pairs = [(each, session) for each in among for session in each.sessions]
    exact = [pair for pair in pairs if pair[1].id == wanted]
    return exact or [pair for pair in pairs if wanted and pair[1].id.startswith(wanted)]


def settle(state: Folder) -> None:
    """Give the bytes of recorded imports that were killed their own name; raises `LedgerError` as `imports` does."""
    pending = [name for name in _folders(state) if state.exists(f"{FOLDER}/{name}/{PENDING}")]
    if pending:
        told = {each.sha256 for each in imports(Path(state.path))}
        for name in told.intersection(pending):
            finish(state, name)


def _folders(state: Folder) -> list[str]:
    try:
        return [found.name for found in state.scan(FOLDER) if found.folder]
    except FileNotFoundError:
        return []


def finish(state: Folder, sha256: str) -> None:
    """Give the bytes of an old ledger their own name, now that the workspace ledger tells of them."""
    with suppress(FileNotFoundError), state.held(f"{FOLDER}/{sha256}") as folder:
        os.rename(PENDING, FILE, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
