"""Takes an old ledger into a workspace: keeps its bytes and records the import in the workspace ledger."""

from pathlib import Path

from deedbook.contract import Object
from deedbook.format.canonical import encode_payload
from deedbook.format.errors import IntakeError, LedgerError, fault, recordable
from deedbook.format.events import Entry, label
from deedbook.format.files import Folder
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.maintenance.imports import FILE, FOLDER, PENDING, TOLD, ImportedLedger, Verdict, finish
from deedbook_audit.report import Report

from .old_file import OldFile


def import_ledger(
    state: Folder, ledger: WorkspaceLedger, old: OldFile, report: Report, *, by: str, as_is: str | None
) -> ImportedLedger:
    """Keep an *old* ledger in the *state* folder and record that in the workspace's *ledger*; raises `LedgerError`.

    *report* is what its verification found. The import may be killed at any moment and begun again: the bytes are
    there before the ledger tells of them, and get their name after that, here or by `settle`.
    """
    sessions, stamp = old.sessions(lenient=not report.faultless), ledger.now()
    verdict: Verdict = "sound" if report.sound else "unhashed" if report.faultless else "unsound"
    why = None if as_is is None or report.faultless else recordable(as_is)
    name = recordable(Path(old.name).name)
    found = ImportedLedger(old.sha256, old.size, old.form, sessions, name, by, verdict, stamp, why)
    entry = Entry(label(TOLD, "user", by), ledger.span(), ledger.root, _payload(found, old.name))
    keep(state, old)
    ledger.append([entry], ts=stamp, durable=True)
    finish(state, old.sha256)
    return found


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


def _payload(found: ImportedLedger, place: str) -> bytes:
    """Return the payload of ``ledger.imported``; raises `LedgerError` (``IMPORT_REFUSED``) if it cannot be one."""
    try:
        return encode_payload(imported_payload(found))
    except IntakeError:
        why = f"it holds {len(found.sessions)} sessions, too many for one event; divide the file"
        raise LedgerError(fault("IMPORT_REFUSED", why, place=place)) from None


def imported_payload(found: ImportedLedger) -> Object:
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
