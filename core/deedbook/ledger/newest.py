"""The file `checkpoint` of a state folder: the newest signed note of the log, which outlives the ledger's end.

It is written after the ledger was synced, so it never knows of more than the ledger has, unless lines were taken away.
"""

from typing import Final

import attrs

from deedbook.format.canonical import decode
from deedbook.format.errors import FileRefused, LedgerError, SignatureError, fault
from deedbook.format.events import MAX_PAYLOAD, split_line
from deedbook.format.files import Folder
from deedbook.format.leaves import CHECKPOINT, Signed, origin_of
from deedbook.format.notes import MAX_TEXT, Note
from deedbook.format.paths import CHECKPOINT_FILE, LEDGER_FILE
from deedbook.format.proofs import Checkpoint
from deedbook.format.tail import find_tail, lines_from_end

_TYPE: Final = b'"event_type":"ledger.checkpoint"'


@attrs.frozen
class Newest:
    """The note in the file and what its text says; its signatures are not checked."""

    note: Note
    checkpoint: Checkpoint


def newest(state: Folder) -> Newest | None:
    """Read the newest checkpoint of a *state* folder; ``None`` where there is no file.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for what is no checkpoint.
    """
    try:
        note = Note.parse(state.read(CHECKPOINT_FILE, limit=MAX_TEXT).decode())
        return Newest(note, Checkpoint.parse(note.text))
    except FileNotFoundError:
        return None
    except (FileRefused, SignatureError, UnicodeDecodeError) as problem:
        why = f"is no signed checkpoint ({problem}); put it back from a copy. `deedbook verify` says what the log holds"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{CHECKPOINT_FILE}")) from None


def keep(state: Folder, note: str) -> bool:
    """Put *note* into the file if it says more than what is there: a larger log, or more signatures of the same.

    The caller lets nobody else write meanwhile (`WorkspaceLedger.alone`). Returns whether it did; raises `OSError`,
    `LedgerError`, `SignatureError`.
    """
    made, before = Note.parse(note), newest(state)
    size = Checkpoint.parse(made.text).size
    known = (before.checkpoint.size, len(before.note.signatures)) if before else (-1, 0)
    if (size, len(made.signatures)) <= known:
        return False
    state.replace(CHECKPOINT_FILE, note.encode(), mode=0o600)
    return True


def refuse_cut(state: Folder) -> None:
    """Raise `LedgerError` as `refuse_below` does, of the workspace ledger as it lies there; nothing is changed."""
    known = newest(state)  # before the ledger, which is written first
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
    """Raise `LedgerError` if the workspace ledger behind *fd*, of *end* bytes, lacks what the file says was signed.

    *ledger* is its id, empty if it has no line. Costs nothing where there is no file.
    """
    known = newest(state)
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
        found = Signed.parse(decode(line.payload), state.path)
        if found.size <= wanted.size:
            if (found.size, found.root) != (wanted.size, wanted.root.hex()):
                _refuse(state, known, f"that of the workspace ledger has {found.size}")
            return
    _refuse(state, known, "the workspace ledger has none")


def _refuse(state: Folder, known: Newest, what: str) -> None:
    why = (
        f"the newest signed checkpoint has {known.checkpoint.size} leaves, and {what}. Lines were taken away, or all "
        "was written anew; nothing is written. Put the whole state folder back from a copy; `deedbook verify` says all"
    )
    raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/{CHECKPOINT_FILE}"))
