"""Find the ledgers of a workspace for commands; imports no plugin."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.ownership import UntrustedError
from deedbook.format.paths import is_state
from deedbook.format.reader import list_sessions
from deedbook.format.schema import suggest
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import STATE, find_state, state_at
from deedbook.workspace.sources import SYSTEM, find_workspace
from deedbook.workspace.workspace import read_workspace

from .output import message

FILE = ".events.jsonl"
WORKSPACE = "workspace"
LAST = "last"
_REPORTED = f"{__name__}.untrusted"


def read_leniently(workspace: str) -> tuple[Workspace, list[str]]:
    """Return the workspace for reading its ledgers, and notes; with faulty settings, only its state folder is known.

    Raises `SourceError` where there is no workspace, or its state folder is unknown.
    """
    root = find_workspace(Path(workspace))
    try:
        return read_recorded(str(root)), []
    except DeedbookError as problem:
        state = _find_state(root)
        if not is_state(state):
            raise
        why = str(problem).splitlines()[0]
        note = f"the settings could not be read, so their keys and witnesses are unknown: {why}"
        return bare_workspace(state, root), [f"{note}; the state is read from {state}"]


def read_recorded(workspace: str) -> Workspace:
    """Return the workspace for reading what is recorded; if others own or may write it, only its state folder is known.

    Then nothing in it runs or decides, and one line says so. Raises `SourceError`.
    """
    root = find_workspace(Path(workspace))
    try:
        return read_workspace(root)
    except UntrustedError as problem:
        _report_untrusted(str(problem).splitlines()[0])
        return bare_workspace(_find_state(root), root)


def _find_state(root: Path) -> Path:
    with Folder.at(root) as folder:
        return find_state(folder, root) or state_at(root, STATE)


def _report_untrusted(why: str) -> None:
    """Say once for each command that the workspace is not trusted."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.setdefault(_REPORTED, why) is not why:
        return
    message(f"only the record is read, and no settings, keys, hooks or plugins of this workspace are used: {why}")


def bare_workspace(state: Path, root: Path) -> Workspace:
    """Return a workspace of which only the *state* folder is known."""
    return Workspace(root=root, system=root / SYSTEM, state=state)


def session_id(workspace: Workspace, name: str, also: Iterable[str] = ()) -> str:
    """Return the id of the session for *name*, an id or its beginning; raises `LedgerError` (``SESSION_NOT_FOUND``).

    Known are the sessions that have a folder, and *also* others. ``last`` is the session that began last.
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


def own_session(workspace: Workspace, name: str) -> str:
    """Return the id of a session of this workspace for *name*, an id or its beginning; raises `LedgerError`.

    ``SESSION_NOT_FOUND``, and ``SESSION_ENDED`` for a session of an old ledger, which never changes.
    """
    try:
        return session_id(workspace, name)
    except LedgerError:
        if not _is_imported(workspace, name):
            raise
    why = (
        f"session {name} is imported: it came with an old ledger, whose bytes stay as they are; nothing is added "
        "to it or taken out of it, and the log has no leaf of it"
    )
    raise LedgerError(fault("SESSION_ENDED", why))


def _is_imported(workspace: Workspace, name: str) -> bool:
    """Return whether *name* is a session of an imported old ledger."""
    from deedbook.maintenance.imports import find, list_imports

    with suppress(DeedbookError, OSError):  # its verification reports the error
        return bool(find(list_imports(workspace.state), name))
    return False


def _newest(workspace: Workspace) -> str | None:
    if not (workspace.state / "sessions").is_dir():
        return None
    with Folder.at(workspace.state) as state:
        begun = [each.id for each in list_sessions(state) if each.started]
    return begun[-1] if begun else None


def session_ids(workspace: Workspace) -> list[str]:
    """Return the ids of all sessions that have a folder, in order."""
    places = (workspace.state / "sessions").glob("*")
    return sorted(place.name for place in places if SESSION_ID.fullmatch(place.name) and place.is_dir())


def own_ledger_path(workspace: Workspace) -> Path:
    """Return the path of the workspace ledger."""
    return workspace.state / "workspace" / FILE


def ledger_path(workspace: Workspace, identity: str) -> Path:
    """Return the path of a session's ledger."""
    return workspace.state / "sessions" / identity / FILE
