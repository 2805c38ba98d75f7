"""Write the file of a state folder that holds the newest signed note of the log."""

from deedbook.format.checkpoints import Checkpoint
from deedbook.format.files import Folder
from deedbook.format.notes import Note
from deedbook.format.paths import CHECKPOINT_FILE
from deedbook.ledger.newest import read_newest


def update_newest(state: Folder, note: str) -> bool:
    """Write *note* to the file if it has more than the present one: a larger log, or more signatures of the same.

    The caller keeps others from writing (`WorkspaceLedger.exclusive`). Returns whether it was written; raises
    `OSError`, `LedgerError`, `SignatureError`.
    """
    made, before = Note.parse(note), read_newest(state)
    size = Checkpoint.parse(made.text).size
    known = (before.checkpoint.size, len(before.note.signatures)) if before else (-1, 0)
    if (size, len(made.signatures)) <= known:
        return False
    state.replace(CHECKPOINT_FILE, note.encode(), mode=0o600)
    return True
