"""Finding ledgers for the commands that read them; imports no plugin."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import FORMAT, MAX_PAYLOAD, SESSION_ID, first_workspace_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.paths import is_state
from deedbook.format.reader import sessions
from deedbook.format.schema import suggest
from deedbook.format.upcasting.naming import parted
from deedbook.format.upcasting.recognition import form_of, not_a_ledger, require_form
from deedbook.format.upcasting.table import UPCASTERS
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import STATE, find_state, state_at
from deedbook.workspace.sources import SYSTEM, find_workspace
from deedbook.workspace.workspace import read_workspace

FILE = ".events.jsonl"
WORKSPACE = "workspace"
LAST = "last"


def standing(workspace: str) -> tuple[Workspace, list[str]]:
    """Return the workspace for who only reads its ledgers, and notes; where its files are at fault, its state alone.

    Raises `SourceError` where there is no workspace, or nothing is known of its state.
    """
    root = find_workspace(Path(workspace))
    try:
        return read_workspace(root), []
    except DeedbookError as problem:
        with Folder.at(root) as folder:
            state = find_state(folder, root) or state_at(root, STATE)
        if not is_state(state):
            raise
        why = str(problem).splitlines()[0]
        said = f"the settings could not be read, so keys and witnesses in them are not known: {why}"
        return bare(state, root), [f"{said}; the state is taken from {state}"]


def bare(state: Path, root: Path) -> Workspace:
    """Return a workspace of which nothing is known but its *state* folder."""
    return Workspace(root=root, system=root / SYSTEM, state=state)


def known_by(state: Path, root: Path) -> tuple[Workspace, list[str]]:
    """Return the workspace at or above *root* whose *state* that is; else that folder alone."""
    with suppress(DeedbookError):
        found, notes = standing(str(root))
        if found.state.resolve() == state.resolve():
            return found, notes
    return bare(state, root), []


def session_file(workspace: str, name: str) -> Path:
    """Return the ledger that *name* names: a session by its id or its beginning, ``last``, ``workspace``, or a file.

    One session of a file of an older form is ``FILE#SESSION``; one that was taken in is named by its id, too, or by
    ``SHA256#SESSION``. Raises `LedgerError`: ``SESSION_NOT_FOUND``, and ``NOT_A_LEDGER`` for a file that is none.
    """
    if not SESSION_ID.fullmatch(name):
        place, session = parted(name)
        if place.is_dir() and not (place / FILE).exists():
            raise not_a_ledger(str(place), f"it is a folder without a file {FILE}")
        place = place / FILE if place.is_dir() else place
        if place.exists():
            refuse_other(place)
            return place if session is None else Path(f"{place}#{session}")
        found = _old(workspace, name)
        if found is None:
            raise LedgerError(fault("SESSION_NOT_FOUND", f"{name!r} is no session id, and no file of that name exists"))
        return found
    source, _ = standing(workspace)
    if name == WORKSPACE and own(source).exists():
        return own(source)
    try:
        identity = session_id(source, name)
    except LedgerError:
        found = _taken_in(source, name)
        if found is None:
            _refuse_bare_file(name)
            raise
        return found
    if not ledger_of(source, identity).exists():
        raise LedgerError(fault("SESSION_NOT_FOUND", f"session {identity} has no ledger; `deedbook verify` says why"))
    return ledger_of(source, identity)


def _refuse_bare_file(name: str) -> None:
    """Raise `LedgerError` where *name*, which is no session, is a file here: a name without a dot or slash is an id."""
    if Path(name).is_file():
        why = f"there is no session {name!r}; to name the file, write ./{name}"
        raise LedgerError(fault("SESSION_NOT_FOUND", why))


def refuse_other(place: Path) -> None:
    """Raise `LedgerError` (``NOT_A_LEDGER``) for a file that is no ledger of any form, and say what it is instead.

    A file in the place of a ledger in a state folder passes: it is a damaged ledger, whatever it holds.
    """
    folders = place.absolute().parents
    if place.name == FILE and any(is_state(folder) for folder in folders[1:3]):
        return
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        require_form(file, str(place))


def _old(workspace: str, name: str) -> Path | None:
    try:
        source, _ = standing(workspace)
    except DeedbookError:  # a file needs no workspace
        return None
    return _taken_in(source, name)


def _taken_in(workspace: Workspace, name: str) -> Path | None:
    """Return where a session of an old ledger is read from that was taken in; ``None`` if there is none."""
    from deedbook.maintenance.imports import find, imports

    state = workspace.state
    try:
        found = find(imports(state), name)
    except (DeedbookError, OSError):  # its own verification says what is wrong with it
        return None
    if len(found) > 1:
        some = ", ".join(f"{each.sha256[:12]}#{session.id}" for each, session in found[:5])
        why = f"{len(found)} sessions that were taken in begin with {name!r}; name one: {some}"
        raise LedgerError(fault("SESSION_NOT_FOUND", why))
    return found[0][0].session(state, found[0][1].id) if found else None


def ledger_named(workspace: Workspace, name: str) -> str:
    """Return the ledger that is to be written: the id of a session of this workspace, or ``workspace``.

    Raises `LedgerError` as `session_here` does.
    """
    return WORKSPACE if name == WORKSPACE and own(workspace).exists() else session_here(workspace, name)


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


def session_here(workspace: Workspace, name: str) -> str:
    """Return the id of the session of this workspace's own that *name* is, or begins; raises `LedgerError`.

    ``SESSION_NOT_FOUND``, and ``SESSION_ENDED`` for one of an old ledger: whatever its last line is, none is added.
    """
    try:
        return session_id(workspace, name)
    except LedgerError:
        if _taken_in(workspace, name) is None:
            raise
    why = (
        f"session {name} is imported: it came with an old ledger, whose bytes stay as they are; nothing is added "
        "to it or taken out of it, and the log has no leaf of it"
    )
    raise LedgerError(fault("SESSION_ENDED", why))


def session_of_trace(workspace: str, trace: str) -> Path:
    """Return the ledger of the session with that trace id; raises `LedgerError` (``SESSION_NOT_FOUND``)."""
    source, _ = standing(workspace)
    for name in session_ids(source):
        with suppress(DeedbookError, OSError):
            if identity(ledger_of(source, name))[1] == trace:
                return ledger_of(source, name)
    raise LedgerError(fault("SESSION_NOT_FOUND", f"no session here has the trace id {trace!r}"))


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
        if name == WORKSPACE and own(workspace).exists():
            return None
        try:
            return session_id(workspace, name, also)
        except LedgerError:
            if _taken_in(workspace, name):
                return None
            _refuse_bare_file(name)
            raise
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


def is_own(place: Path) -> bool:
    """Say whether the ledger at *place* is a workspace's own, as its first line tells; raises `LedgerError`."""
    file_, _ = parted(place)
    with Folder.at(file_.parent) as folder, folder.open(file_.name) as file:
        raw = file.readline(MAX_PAYLOAD + 4096)
    if not raw.endswith(b"\n") or form_of(raw) != FORMAT:
        return False
    first = split_line(raw, place=f"{place}:1")
    return first.prev_envelope_hash == first_workspace_hash(first.session_id)


def ledger_of(workspace: Workspace, identity: str) -> Path:
    """Return where the ledger of a session is."""
    return workspace.state / "sessions" / identity / FILE


def identity(place: Path) -> tuple[str, str]:
    """Return a ledger's session id and trace id, as its first line has them; raises `LedgerError`."""
    file_, session = parted(place)
    with Folder.at(file_.parent) as folder, folder.open(file_.name) as file:
        raw = file.readline(MAX_PAYLOAD + 4096).rstrip(b"\n")
    if (form := form_of(raw)) != FORMAT:
        row = UPCASTERS.row(raw, form, f"{place}:1")
        return session or row["session_id"], row["trace_id"]
    first = split_line(raw, place=f"{place}:1")
    return first.session_id, first.trace_id
