"""Finding ledgers for the commands that read them; imports no plugin."""

from pathlib import Path

from deedbook.declarations import Workspace
from deedbook.errors import LedgerError, fault
from deedbook.events import MAX_PAYLOAD, SESSION_ID, split_line
from deedbook.files import Folder
from deedbook.kernel import read_workspace
from deedbook.schema import suggest

FILE = ".events.jsonl"
WORKSPACE = "workspace"


def session_file(workspace: str, name: str) -> Path:
    """Return the ledger that *name* names: a session by its id or the beginning of it, ``workspace``, or a file.

    Raises `LedgerError` (``SESSION_NOT_FOUND``).
    """
    place = Path(name)
    if not SESSION_ID.fullmatch(name):
        place = place / FILE if place.is_dir() else place
        if place.exists():
            return place
        raise LedgerError(fault("SESSION_NOT_FOUND", f"{name!r} is no session id, and no file of that name exists"))
    source = read_workspace(workspace)
    if name == WORKSPACE and own(source).exists():
        return own(source)
    return ledger_of(source, session_id(source, name))


def session_id(workspace: Workspace, name: str) -> str:
    """Return the id of the session that *name* is, or begins; raises `LedgerError` (``SESSION_NOT_FOUND``)."""
    known = sorted(place.parent.name for place in session_files(workspace))
    found = [identity for identity in known if identity.startswith(name)]
    if name in known:
        return name
    if len(found) == 1:
        return found[0]
    why = f"there is no session {name!r}{suggest(name, known)}. `deedbook sessions` lists them"
    if found:
        why = f"{len(found)} sessions begin with {name!r}; give more of the id"
    raise LedgerError(fault("SESSION_NOT_FOUND", why))


def session_files(workspace: Workspace) -> list[Path]:
    """Return the ledgers of all sessions, in order of their ids."""
    return sorted((workspace.state / "sessions").glob(f"*/{FILE}"))


def own(workspace: Workspace) -> Path:
    """Return where the workspace ledger is."""
    return workspace.state / "workspace" / FILE


def ledger_of(workspace: Workspace, identity: str) -> Path:
    """Return where the ledger of a session is."""
    return workspace.state / "sessions" / identity / FILE


def identity(place: Path) -> tuple[str, str]:
    """Return a ledger's session id and trace id, as its first line has them; raises `LedgerError`."""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        first = split_line(file.readline(MAX_PAYLOAD + 4096).rstrip(b"\n"), place=f"{place}:1")
    return first.session_id, first.trace_id
