"""Access to ledgers for commands that read many of them, and for plugins that add commands."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from deedbook.format.errors import DeedbookError

_HEAD: Final = 400
"""The event type is among the first so many bytes of a line."""
UNSOUND: Final = 4
"""The exit status for a ledger that is not sound."""

if TYPE_CHECKING:
    from deedbook.format.families import DeclaredTypes
    from deedbook.workspace.declarations import Workspace
    from deedbook_inspect.observing.ledger_reader import LedgerReader


@attrs.frozen
class LedgerFile:
    """A ledger: its *place*, and whether a process writes it; *is_workspace* marks the workspace's own.

    One of several sessions in a file of an older form has ``FILE#SESSION`` as its place.
    """

    place: Path
    is_live: bool = False
    is_workspace: bool = False

    @property
    def size(self) -> int:
        """The size of its file in bytes."""
        from deedbook_audit.upcasting.naming import split_source

        return split_source(self.place)[0].stat().st_size


@attrs.define
class Ledgers:
    """The ledgers of the workspace at or above *workspace*, to be read. Imports no plugin."""

    workspace: str = "."
    _documents: dict[str, Mapping[str, Any]] = attrs.field(factory=dict, init=False)

    def find(self, name: str) -> LedgerFile:
        """Return the ledger that *name* refers to: an id or its beginning, ``last``, ``workspace``, a file.

        Raises `LedgerError` (``SESSION_NOT_FOUND``).
        """
        from deedbook_audit.commands.ledgers import session_file

        place = session_file(self.workspace, name)
        return LedgerFile(place, is_live=_is_live(place), is_workspace=place.parent.name == "workspace")

    def list_all(self) -> Iterator[LedgerFile]:
        """Yield every ledger of the workspace that has begun: its own, then the sessions', the oldest first.

        After them come the sessions of imported old ledgers.
        """
        from deedbook.cli.ledgers import ledger_path, own_ledger_path
        from deedbook.format.files import Folder
        from deedbook.format.reader import list_sessions

        source = self._source()
        if own_ledger_path(source).exists():
            yield LedgerFile(own_ledger_path(source), is_live=True, is_workspace=True)
        if source.state.is_dir():
            with Folder.at(source.state) as state:
                listed = list_sessions(state)
            for each in listed:
                if each.state != "empty":
                    yield LedgerFile(ledger_path(source, each.id), is_live=each.state == "open")
            yield from _list_imported(source.state)

    def open(self, place: Path) -> "LedgerReader":
        """Return a reader of the ledger at *place*, which may still grow."""
        from deedbook_inspect.observing.ledger_reader import LedgerReader

        return LedgerReader(place)

    def describe_unread(self, found: LedgerFile) -> str:
        """Return what cannot be read at the end of a ledger that no process writes; empty if all can."""
        return describe_unread(found)

    def list_providers(self, charter: str) -> Mapping[str, str]:
        """Return the provider of each model in the charter with a digest; empty if it is not kept here."""
        from deedbook_inspect.observing.providers import list_providers

        document = self._charter(charter)
        return list_providers(document) if document else {}

    def types(self, charter: str) -> "DeclaredTypes":
        """Return the event types that the charter with a digest declares; none where it is not kept here."""
        from deedbook.format.families import DeclaredTypes

        return DeclaredTypes(self._charter(charter).get("records", {}))

    def find_layer(self, event_type: str, charter: str = "") -> str | None:
        """Return the layer of an event type; of a plugin's own as *charter* (a digest) declares it."""
        return self.types(charter).layer(event_type)

    @property
    def state(self) -> Path:
        """The state folder of the workspace; raises `SourceError` if there is none."""
        return self._source().state

    def _source(self) -> "Workspace":
        from deedbook.cli.ledgers import read_recorded

        return read_recorded(self.workspace)

    def _charter(self, digest: str) -> Mapping[str, Any]:
        """Return the document of the charter that is kept under *digest*; an empty one where there is none."""
        if digest not in self._documents:
            found: Mapping[str, Any] = {}
            if digest:
                with suppress(DeedbookError, OSError):  # a file needs no workspace
                    found = _read_charter(self.state, digest)
            self._documents[digest] = found
        return self._documents[digest]


def types_in(place: Path) -> "DeclaredTypes":
    """Return the event types that the charters of the session at *place* declare; none for a file elsewhere.

    A session that was resumed under another charter has several; the last one that declares a type counts.
    """
    from deedbook.format.families import NOTHING_DECLARED, DeclaredTypes
    from deedbook.format.paths import is_state

    state = place.parents[2] if len(place.parents) > 2 else place
    if not is_state(state):
        return NOTHING_DECLARED
    rows: dict[str, Any] = {}
    with suppress(DeedbookError, OSError):
        for digest in _charters_of(place):
            rows.update(_read_charter(state, digest).get("records", {}))
    return DeclaredTypes(rows)


def _charters_of(place: Path) -> Iterator[str]:
    """Yield the digests of the charters of a session, reading only the lines that name one."""
    from deedbook.format.events import split_line

    with place.open("rb") as file:
        for number, raw in enumerate(file):
            if not number or b'"event_type":"session.resumed"' in raw[:_HEAD]:
                yield str(split_line(raw, place=str(place)).event.payload.get("charter"))


def _read_charter(state: Path, digest: str) -> Mapping[str, Any]:
    from deedbook.charter.store import Store
    from deedbook.format.files import Folder

    with Folder.at(state) as folder:
        charter = Store(folder).find(digest)
    return charter.document if charter else {}


def report_torn_end(place: Path) -> int:
    """Print an error for a torn end of a ledger that no process writes; return the exit status."""
    from deedbook.cli.output import report_error

    why = describe_unread(LedgerFile(place, is_live=_is_live(place)))
    if why:
        report_error(f"{why} [LEDGER_UNSOUND]")
    return UNSOUND if why else 0


def describe_unread(found: LedgerFile) -> str:
    """Return what cannot be read at the end of a ledger that no process writes: a torn line. Empty if all can."""
    from deedbook.cli.common import display_path
    from deedbook_audit.upcasting.naming import split_source

    place = split_source(found.place)[0]
    with place.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        whole = file.read(1) in (b"", b"\n")
    return (
        ""
        if whole or found.is_live
        else f"{display_path(place)}: bytes that are no line stand at its end; verify the file"
    )


def _list_imported(state: Path) -> Iterator[LedgerFile]:
    from deedbook.maintenance.imports import list_imports

    try:
        known = list_imports(state)
    except (DeedbookError, OSError):  # reading the workspace's own ledger reports it
        return
    for one in known:
        yield from (LedgerFile(one.session(state, each.id)) for each in one.sessions)


def _is_live(place: Path) -> bool:
    """Return whether a process writes the ledger at *place*; the workspace's own may be written at any time."""
    from deedbook.format.files import Folder
    from deedbook.format.reader import is_open

    if place.parent.parent.name != "sessions":
        return place.parent.name == "workspace"
    with Folder.at(place.parents[2]) as state:
        return is_open(state, place.parent.name)
