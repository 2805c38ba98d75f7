"""The file `checkpoint` of a state folder: the newest signed note of the log, which survives a cut of the ledger.

It is written after the ledger was synced, so it never has more than the ledger, unless lines were removed.
"""

from typing import Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.checkpoints import CHECKPOINT, Checkpoint, SignedCheckpoint, origin_of
from deedbook.format.errors import FileRefused, LedgerError, SignatureError, fault
from deedbook.format.events import MAX_PAYLOAD, split_line
from deedbook.format.files import Folder
from deedbook.format.notes import MAX_TEXT, Note
from deedbook.format.paths import CHECKPOINT_FILE, LEDGER_FILE
from deedbook.format.tail import find_tail, lines_from_end

_TYPE: Final = b'"event_type":"ledger.checkpoint"'


@attrs.frozen
class NewestCheckpoint:
    """The note in the file and its parsed text; its signatures are not verified."""

    note: Note
    checkpoint: Checkpoint


def read_newest(state: Folder) -> NewestCheckpoint | None:
    """Return the newest checkpoint of a *state* folder; ``None`` if there is no file.

    Raises `LedgerError` (``LEDGER_UNSOUND``) if it is no checkpoint.
    """
    try:
        note = Note.parse(state.read(CHECKPOINT_FILE, limit=MAX_TEXT).decode())
        return NewestCheckpoint(note, Checkpoint.parse(note.text))
    except FileNotFoundError:
        return None
    except (FileRefused, SignatureError, UnicodeDecodeError) as problem:
        why = f"is no signed checkpoint ({problem}); restore it from a copy. `deedbook verify` shows what the log holds"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{CHECKPOINT_FILE}")) from None


def refuse_cut(state: Folder) -> None:
    """Raise `LedgerError` as `refuse_below` does, for the workspace ledger on disk; nothing is changed."""
    known = read_newest(state)  # read before the ledger, which is written first
    if known is None:
        return
    try:
        with state.sub("workspace") as folder, folder.open(LEDGER_FILE) as file:
            raw = file.readline(MAX_PAYLOAD + 4096)
            if not raw.endswith(b"\n"):
                _refuse(state, known, "the workspace ledger is gone")
            first = split_line(raw[:-1], place=f"{folder.path}/{LEDGER_FILE}:1")
            end = find_tail(file.fileno(), place=folder.path).end
            refuse_below(state, file.fileno(), end, first.session_id)
    except FileNotFoundError:
        _refuse(state, known, "the workspace ledger is gone")


def refuse_below(state: Folder, fd: int, end: int, ledger: str) -> None:
    """Raise `LedgerError` if the workspace ledger behind *fd*, of *end* bytes, lacks what the checkpoint covers.

    *ledger* is its id, empty if it has no line. Costs nothing if there is no file.
    """
    known = read_newest(state)
    if known is None:
        return
    wanted = known.checkpoint
    if wanted.origin != origin_of(ledger):
        what = "this is another workspace ledger" if ledger else "the workspace ledger is gone"
        _refuse(state, known, what)
    for offset, raw in lines_from_end(fd, end, place=state.path):
        if (
            _TYPE not in raw[:512]
            or (line := split_line(raw, place=f"{state.path} at {offset}")).event_type != CHECKPOINT
        ):
            continue
        found = SignedCheckpoint.parse(decode(line.payload), state.path)
        if found.size <= wanted.size:
            if (found.size, found.root) != (wanted.size, wanted.root.hex()):
                _refuse(state, known, f"that of the workspace ledger has {found.size}")
            return
    _refuse(state, known, "the workspace ledger has none")


def _refuse(state: Folder, known: NewestCheckpoint, what: str) -> None:
    why = (
        f"the newest signed checkpoint has {known.checkpoint.size} leaves, and {what}. Lines were taken away, or all "
        "was written anew; nothing is written. Put the whole state folder back from a copy; `deedbook verify` says all"
    )
    raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{CHECKPOINT_FILE}"))
