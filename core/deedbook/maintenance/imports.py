"""Old ledgers in a workspace: their bytes kept as they were, under their hash, and who took them in.

The workspace ledger tells of each (``ledger.imported``); the bytes lie in ``imported/<sha256>/`` of the state folder,
read-only. They are never rewritten: whoever reads them gets present events.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format.canonical import encode_payload
from deedbook.format.errors import IntakeError, LedgerError, fault, recordable
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.format.reader import Listed, read
from deedbook.format.report import Report
from deedbook.format.sealed import opened
from deedbook.ledger.ledger import WorkspaceLedger

from .old_file import OldFile

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


# --- taking one in ----------------------------------------------------------------------------------------------------


def keep(state: Folder, old: OldFile) -> None:
    """Keep the bytes of an old ledger in the *state* folder, durably and read-only, under their hash, as `PENDING`.

    What is there already with these bytes stays; other bytes under this hash raise `LedgerError` (``LEDGER_UNSOUND``).
    """
    folder = f"{FOLDER}/{old.sha256}"
    state.make(folder)
    try:
        if state.digests(folder, [FILE]) != [old.sha256]:
            why = "other bytes are kept there than their name says; put the right ones there, or remove it by hand"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{folder}/{FILE}"))
    except FileNotFoundError:
        state.replace(f"{folder}/{PENDING}", old.blocks(), mode=0o444)


def settle(state: Folder) -> None:
    """Give the bytes of recorded imports that were killed their own name; raises `LedgerError` as `imports` does."""
    pending = [name for name in _folders(state) if state.exists(f"{FOLDER}/{name}/{PENDING}")]
    if pending:
        told = {each.sha256 for each in imports(Path(state.path))}
        for name in told.intersection(pending):
            _finish(state, name)


def _folders(state: Folder) -> list[str]:
    try:
        return [found.name for found in state.scan(FOLDER) if found.folder]
    except FileNotFoundError:
        return []


def _finish(state: Folder, sha256: str) -> None:
    with suppress(FileNotFoundError), state.held(f"{FOLDER}/{sha256}") as folder:
        os.rename(PENDING, FILE, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def take_in(
    state: Folder, ledger: WorkspaceLedger, old: OldFile, report: Report, *, by: str, as_is: str | None
) -> Imported:
    """Keep an *old* ledger in the *state* folder and record that in the workspace's *ledger*; raises `LedgerError`.

    *report* is what its verification found. The import may be killed at any moment and begun again: the bytes are
    there before the ledger tells of them, and get their name after that, here or by `settle`.
    """
    sessions, stamp = old.sessions(lenient=not report.faultless), ledger.now()
    verdict: Verdict = "sound" if report.sound else "unhashed" if report.faultless else "unsound"
    why = None if as_is is None or report.faultless else recordable(as_is)
    name = recordable(Path(old.name).name)
    found = Imported(old.sha256, old.size, old.form, sessions, name, by, verdict, stamp, why)
    entry = Entry(label(TOLD, "user", by), ledger.span(), ledger.root, _payload(found, old.name))
    keep(state, old)
    ledger.append([entry], ts=stamp, durable=True)
    _finish(state, old.sha256)
    return found


def _payload(found: Imported, place: str) -> bytes:
    """Return the payload of ``ledger.imported``; raises `LedgerError` (``IMPORT_REFUSED``) if it cannot be one."""
    try:
        return encode_payload(told(found))
    except IntakeError:
        why = f"it holds {len(found.sessions)} sessions, too many for one event; divide the file"
        raise LedgerError(fault("IMPORT_REFUSED", why, place=place)) from None


def told(found: Imported) -> Object:
    """Return what ``ledger.imported`` says of it."""
    sessions = [
        {
            "session": each.id,
            "events": each.events,
            "started": each.started,
            "latest": each.latest,
            "ended": each.state == "ended",
        }
        for each in found.sessions
    ]
    own = {name: getattr(found, name) for name in ("sha256", "size", "format", "by", "verdict")}
    more = {} if found.as_is is None else {"as_is": found.as_is}
    return {**own, "sessions": sessions, "from": found.name, **more}
