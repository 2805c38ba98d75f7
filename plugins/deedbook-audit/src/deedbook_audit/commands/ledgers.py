"""Find ledgers of any form for the commands that read them: in a workspace, imported, or in a file."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deedbook.cli.ledgers import (
    FILE,
    WORKSPACE,
    bare_workspace,
    ledger_path,
    own_ledger_path,
    read_leniently,
    session_id,
    session_ids,
)
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import FORMAT, MAX_PAYLOAD, SESSION_ID, first_workspace_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import is_state
from deedbook.workspace.declarations import Workspace
from deedbook_audit.upcasting.naming import split_source
from deedbook_audit.upcasting.recognition import form_of, not_a_ledger, require_form
from deedbook_audit.upcasting.table import UPCASTERS


def workspace_of_state(state: Path, root: Path) -> tuple[Workspace, list[str]]:
    """Return the workspace at or above *root* that has this *state*; otherwise only the state folder."""
    with suppress(DeedbookError):
        found, notes = read_leniently(str(root))
        if found.state.resolve() == state.resolve():
            return found, notes
    return bare_workspace(state, root), []


def session_file(workspace: str, name: str) -> Path:
    """Return the ledger for *name*: a session by its id or its beginning, ``last``, ``workspace``, or a file.

    A session in a file of an older form is ``FILE#SESSION``; an imported session is found by its id, or by
    ``SHA256#SESSION``. Raises `LedgerError`: ``SESSION_NOT_FOUND``, and ``NOT_A_LEDGER`` for a file that is no ledger.
    """
    if not SESSION_ID.fullmatch(name):
        place, session = split_source(name)
        if place.is_dir() and not (place / FILE).exists():
            raise not_a_ledger(str(place), f"it is a folder without a file {FILE}")
        place = place / FILE if place.is_dir() else place
        if place.exists():
            refuse_other(place)
            return place if session is None else Path(f"{place}#{session}")
        found = _imported_session_at(workspace, name)
        if found is None:
            raise LedgerError(fault("SESSION_NOT_FOUND", f"{name!r} is no session id, and no file of that name exists"))
        return found
    source, _ = read_leniently(workspace)
    if name == WORKSPACE and own_ledger_path(source).exists():
        return own_ledger_path(source)
    try:
        identity = session_id(source, name)
    except LedgerError:
        found = _imported_session(source, name)
        if found is None:
            _refuse_bare_file(name)
            raise
        return found
    if not ledger_path(source, identity).exists():
        raise LedgerError(
            fault("SESSION_NOT_FOUND", f"session {identity} has no ledger; `deedbook verify` reports why")
        )
    return ledger_path(source, identity)


def _refuse_bare_file(name: str) -> None:
    """Raise `LedgerError` if *name*, which is no session, is a file: a name without a dot or slash is read as an id."""
    if Path(name).is_file():
        why = f"there is no session {name!r}; to name the file, write ./{name}"
        raise LedgerError(fault("SESSION_NOT_FOUND", why))


def refuse_other(place: Path) -> None:
    """Raise `LedgerError` (``NOT_A_LEDGER``) for a file that is no ledger of any form, and describe the file.

    A file at the place of a ledger in a state folder is accepted: it is a damaged ledger.
    """
    folders = place.absolute().parents
    if place.name == FILE and any(is_state(folder) for folder in folders[1:3]):
        return
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        require_form(file, str(place))


def _imported_session_at(workspace: str, name: str) -> Path | None:
    try:
        source, _ = read_leniently(workspace)
    except DeedbookError:  # a file needs no workspace
        return None
    return _imported_session(source, name)


def _imported_session(workspace: Workspace, name: str) -> Path | None:
    """Return the path of an imported session of an old ledger; ``None`` if there is none."""
    from deedbook.maintenance.imports import find, list_imports

    state = workspace.state
    try:
        found = find(list_imports(state), name)
    except (DeedbookError, OSError):  # its verification reports the error
        return None
    if len(found) > 1:
        some = ", ".join(f"{each.sha256[:12]}#{session.id}" for each, session in found[:5])
        why = f"{len(found)} imported sessions begin with {name!r}; name one: {some}"
        raise LedgerError(fault("SESSION_NOT_FOUND", why))
    return found[0][0].session(state, found[0][1].id) if found else None


def session_of_trace(workspace: str, trace: str) -> Path:
    """Return the ledger of the session with this trace id; raises `LedgerError` (``SESSION_NOT_FOUND``)."""
    source, _ = read_leniently(workspace)
    for name in session_ids(source):
        with suppress(DeedbookError, OSError):
            if ledger_identity(ledger_path(source, name))[1] == trace:
                return ledger_path(source, name)
    raise LedgerError(fault("SESSION_NOT_FOUND", f"no session here has the trace id {trace!r}"))


def find_session(workspace: Workspace, name: str, also: Iterable[str] = ()) -> str | None:
    """Return the id of the session of *workspace* for *name*, an id or its file; ``None`` for another file.

    Known are the sessions that have a folder, and *also* others. Raises `LedgerError` (``SESSION_NOT_FOUND``).
    """
    if SESSION_ID.fullmatch(name):
        if name == WORKSPACE and own_ledger_path(workspace).exists():
            return None
        try:
            return session_id(workspace, name, also)
        except LedgerError:
            if _imported_session(workspace, name):
                return None
            _refuse_bare_file(name)
            raise
    place = Path(name)
    place = (place / FILE if place.is_dir() else place).resolve()
    found = place.parent.name
    return found if place.exists() and place == ledger_path(workspace, found).resolve() else None


def is_own_ledger(place: Path) -> bool:
    """Return whether the ledger at *place* is a workspace's own, by its first line; raises `LedgerError`."""
    file_, _ = split_source(place)
    with Folder.at(file_.parent) as folder, folder.open(file_.name) as file:
        raw = file.readline(MAX_PAYLOAD + 4096)
    if not raw.endswith(b"\n") or form_of(raw) != FORMAT:
        return False
    first = split_line(raw, place=f"{place}:1")
    return first.prev_envelope_hash == first_workspace_hash(first.session_id)


def ledger_identity(place: Path) -> tuple[str, str]:
    """Return a ledger's session id and trace id from its first line; raises `LedgerError`."""
    file_, session = split_source(place)
    with Folder.at(file_.parent) as folder, folder.open(file_.name) as file:
        raw = file.readline(MAX_PAYLOAD + 4096).rstrip(b"\n")
    if (form := form_of(raw)) != FORMAT:
        row = UPCASTERS.row(raw, form, f"{place}:1")
        return session or row["session_id"], row["trace_id"]
    first = split_line(raw, place=f"{place}:1")
    return first.session_id, first.trace_id
