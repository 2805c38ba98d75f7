"""Finding ledgers for the commands that read them; imports no plugin."""

from collections.abc import Iterable
from pathlib import Path

from deedbook.errors import LedgerError, fault
from deedbook.events import MAX_PAYLOAD, SESSION_ID, split_line
from deedbook.files import Folder
from deedbook.kernel import read_workspace
from deedbook.reader import sessions
from deedbook.schema import suggest
from deedbook.workspaces.declarations import Workspace

FILE = ".events.jsonl"
WORKSPACE = "workspace"
LAST = "last"


def session_file(workspace: str, name: str) -> Path:
    """Return the ledger that *name* names: a session by its id or its beginning, ``last``, ``workspace``, or a file.

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
    found = session_id(source, name)
    if not ledger_of(source, found).exists():
        raise LedgerError(fault("SESSION_NOT_FOUND", f"session {found} has no ledger; `deedbook verify` says why"))
    return ledger_of(source, found)


def session_id(workspace: Workspace, name: str, also: Iterable[str] = ()) -> str:
    """Return the id of the session that *name* is, or begins; raises `LedgerError` (``SESSION_NOT_FOUND``).

    Known are the sessions that have a folder, and *also* others. ``last`` is the one that began last.
    """
    known = sorted({*session_ids(workspace), *also})
    found = [identity for identity in known if identity.startswith(name)]
    if name in known:
        return name
    if len(found) == 1:
        return found[0]
    newest = _newest(workspace) if name == LAST and not found else None
    if newest:
        return newest
    why = f"there is no session {name!r}{suggest(name, known)}. `deedbook sessions` lists them"
    if found:
        why = f"{len(found)} sessions begin with {name!r}; give more of the id"
    raise LedgerError(fault("SESSION_NOT_FOUND", why))


def _newest(workspace: Workspace) -> str | None:
    if not (workspace.state / "sessions").is_dir():
        return None
    with Folder.at(workspace.state) as state:
        begun = [each.id for each in sessions(state) if each.started]
    return begun[-1] if begun else None


def session_named(workspace: Workspace, name: str, also: Iterable[str] = ()) -> str | None:
    """Return the id of the session of *workspace* that *name* is, as an id or as its file; ``None`` for another file.

    Known are the sessions that have a folder, and *also* others. Raises `LedgerError` (``SESSION_NOT_FOUND``).
    """
    if SESSION_ID.fullmatch(name):
        return None if name == WORKSPACE and own(workspace).exists() else session_id(workspace, name, also)
    place = Path(name)
    place = (place / FILE if place.is_dir() else place).resolve()
    found = place.parent.name
    return found if place.exists() and place == ledger_of(workspace, found).resolve() else None


def session_ids(workspace: Workspace) -> list[str]:
    """Return the ids of all sessions that have a folder, in order."""
    places = (workspace.state / "sessions").glob("*")
    return sorted(place.name for place in places if SESSION_ID.fullmatch(place.name) and place.is_dir())


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
