"""Read ledgers of any form: events of an older form are upcast. A file of an older form may hold several sessions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

import attrs

from deedbook.contract import Event
from deedbook.format import reader
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import FORMAT
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import LONGEST, SessionSummary, State, read_lines

from .naming import split_source
from .recognition import form_of
from .table import UPCASTERS


def read(source: str | Path) -> Iterator[Event]:
    """Yield the events of the ledger *source*: its file, its folder, or ``FILE#SESSION``.

    Raises as `reader.read` does, and ``SESSION_NOT_NAMED`` for a file of several sessions without a name.
    """
    path, session = split_source(source)
    path = path / LEDGER_FILE if path.is_dir() else path
    with Folder.at(path.parent) as folder, folder.open(path.name) as file:
        form = form_of(file.readline(LONGEST))
        file.seek(0)
        if form != FORMAT:
            yield from _old_events(file, str(path), form, session)
            return
    yield from reader.read(path)


def _old_events(file: BinaryIO, name: str, form: str, session: str | None) -> Iterator[Event]:
    """Yield the events of one session of a file of an older *form*, numbered by themselves."""
    if session is None:
        found = old_sessions(file, name, form)
        if len(found) > 1:
            raise LedgerError(fault("SESSION_NOT_NAMED", _several(name, list(found)), place=name))
        file.seek(0)
    seq = 0
    for number, raw in enumerate(read_lines(file, name), 1):
        of, event = UPCASTERS.event(raw, form, seq, f"{name}:{number}")
        if session in (None, of):
            seq += 1
            yield event
    if session is not None and not seq:
        raise LedgerError(fault("SESSION_NOT_FOUND", f"no session {session!r} is in the file", place=name))


def sessions_in(path: Path) -> list[str]:
    """Return the ids of the sessions in a file of an older form; none for a ledger of the present form.

    Raises as `read` does.
    """
    with Folder.at(path.parent) as folder, folder.open(path.name) as file:
        form = form_of(file.readline(LONGEST))
        file.seek(0)
        return [] if form == FORMAT else list(old_sessions(file, str(path), form))


def old_sessions(file: BinaryIO, name: str, form: str, *, lenient: bool = False) -> dict[str, SessionSummary]:
    """Return the sessions of a *file* of an older *form* in their order; raises `LedgerError` as `read` does.

    With *lenient*, unreadable lines are skipped.
    """
    found: dict[str, SessionSummary] = {}
    for number, raw in enumerate(read_lines(file, name), 1):
        try:
            of, event = UPCASTERS.event(raw, form, 0, f"{name}:{number}")
        except LedgerError:
            if lenient:
                continue
            raise
        before = found.get(of) or SessionSummary(of, "interrupted", event.ts)
        state = _STATES_AFTER.get(event.type, before.state)
        found[of] = attrs.evolve(before, state=state, latest=event.ts, events=before.events + 1)
    return found


_STATES_AFTER: Final[Mapping[str, State]] = MappingProxyType(
    {"session.end": "ended", "system.boot": "interrupted", "system.shutdown": "ended"}
)
"""The state of a session of an older form after certain events; seed 002's system boots and shuts down repeatedly."""


def _several(name: str, ids: list[str]) -> str:
    some = ", ".join(f"{Path(name).name}#{each}" for each in ids[:5])
    return f"it holds {len(ids)} sessions; name one: {some}{', …' if len(ids) > 5 else ''}"
