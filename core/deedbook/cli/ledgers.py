"""Finding ledgers for the commands that read them; imports no plugin."""

from pathlib import Path

from deedbook.declarations import Workspace
from deedbook.errors import LedgerError, fault
from deedbook.events import MAX_PAYLOAD, SESSION_ID, split_line
from deedbook.files import Folder
from deedbook.kernel import read_workspace
from deedbook.schema import suggest

FILE = ".events.jsonl"


def session_file(workspace: str, name: str) -> Path:
    """Return the ledger of the session that *name* names, by its id or the beginning of it; or the file *name*.

    Raises `LedgerError` (``SESSION_NOT_FOUND``).
    """
    if not SESSION_ID.fullmatch(name):
        place = Path(name)
        if place.is_dir():
            place /= FILE
        if place.exists():
            return place
        raise LedgerError(fault("SESSION_NOT_FOUND", f"{name!r} is no session id, and no file of that name exists"))
    return _by_id(read_workspace(workspace), name)


def all_files(workspace: Workspace) -> list[Path]:
    """Return the workspace ledger and the ledgers of all sessions, in order of their ids."""
    own = workspace.state / "workspace" / FILE
    return [*([own] if own.exists() else []), *sorted((workspace.state / "sessions").glob(f"*/{FILE}"))]


def identity(place: Path) -> tuple[str, str]:
    """Return a ledger's session id and trace id, as its first line has them; raises `LedgerError`."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        first = split_line(file.readline(MAX_PAYLOAD + 4096).rstrip(b"\n"), place=f"{place}:1")
    return first.session_id, first.trace_id


def _by_id(workspace: Workspace, name: str) -> Path:
    known = {place.parent.name: place for place in (workspace.state / "sessions").glob(f"*/{FILE}")}
    if name == "workspace":
        return workspace.state / "workspace" / FILE
    found = [place for identity, place in sorted(known.items()) if identity.startswith(name)]
    if name in known or len(found) == 1:
        return known.get(name) or found[0]
    if not found:
        why = f"there is no session {name!r}{suggest(name, known)}; `deedbook sessions` lists them"
    else:
        why = f"{len(found)} sessions begin with {name!r}; give more of the id"
    raise LedgerError(fault("SESSION_NOT_FOUND", why))
