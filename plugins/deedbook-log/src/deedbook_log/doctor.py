"""The check of the log for `deedbook doctor`."""

from collections.abc import Iterator

from deedbook.charter.settings import CheckpointSettings
from deedbook.contract.features import Check
from deedbook.format.checkpoints import origin_of
from deedbook.format.errors import DeedbookError, describe
from deedbook.format.files import Folder
from deedbook.ledger.newest import read_newest, refuse_cut
from deedbook.workspace.declarations import Workspace

from .checkpoints.keys import LogKeys


def check_log(workspace: Workspace) -> Iterator[Check]:
    """Check the newest checkpoint, and whether this user has the key for the next one."""
    try:
        with Folder.at(workspace.state) as state:
            known = read_newest(state)
            refuse_cut(state)
    except FileNotFoundError:
        known = None
    except DeedbookError as problem:
        yield Check("log", "fault", describe(problem), "deedbook verify")
        return
    if known is None:
        yield Check("log", "ok", "no checkpoints, since the log has no key (deedbook keys rotate)")
        return
    settings = CheckpointSettings.read(workspace.checkpoints, workspace.root)
    ledger = known.checkpoint.origin.removeprefix(origin_of(""))
    lacks = LogKeys.of(ledger, settings.key).explain_missing(known.note.signatures[0].id)
    if lacks and settings.before:
        denied = f"calls that are {' or '.join(sorted(settings.before))} are denied"
        yield Check("log", "note", f"{lacks.error.message}; {denied}", "deedbook keys rotate --lost, or another user")
    else:
        yield Check("log", "ok", f"{known.checkpoint.size} leaves, and the key that signs the next checkpoint is here")
