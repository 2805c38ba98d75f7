"""What ``deedbook doctor`` says about freezes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deedbook.contract.features import Check
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.policy.requests import approvers

from .checking import FreezeDocument
from .freezes import FOLDER, FreezeInvalid

_THAW = "deedbook freeze shows it; deedbook thaw lifts it"


def examine(workspace: Any) -> Iterator[Check]:
    """Yield what is frozen, and whether the record of that is sound; nothing if there never was a freeze."""
    place: Path = workspace.state
    if not (place / FOLDER).is_dir() or not (place / "workspace" / LEDGER_FILE).is_file():
        return
    sources = workspace.principals.items()
    keys = approvers({name: {"roles": each.roles, "key": each.key} for name, each in sources})
    with Folder.at(place) as state:
        ledger = _read_id(state)
        document = FreezeDocument(state, ledger, keys)
        try:
            found = document.read()
        except FreezeInvalid as problem:
            yield Check("freeze", "fault", f"every call is denied: {problem}", _THAW)
            return
        finally:
            document.close()
    yield from (Check("freeze", "note", str(each), _THAW) for each in found.freezes)


def _read_id(state: Folder) -> str:
    """Return the id of the workspace ledger."""
    place = f"workspace/{LEDGER_FILE}"
    with state.open(place) as file:
        return split_line(file.readline().rstrip(b"\n"), place=place).session_id
