"""A reader of ledgers for export: each event with the ids and hashes of its line, also while it is being written.

A ledger of an older form is read whole and converted; fields that its lines lack are derived from those they have, so
that the result is always the same.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import attrs

from deedbook.contract import Event
from deedbook.format.canonical import MAX_BYTES
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import FORMAT, TRACE_ID
from deedbook.format.files import Folder
from deedbook.format.reader import Follower
from deedbook_audit.upcasting.naming import split_source
from deedbook_audit.upcasting.reader import read
from deedbook_audit.upcasting.recognition import form_of
from deedbook_audit.upcasting.table import UPCASTERS

__all__ = ["LedgerEvent", "LedgerReader"]

_SPAN: Final = re.compile("(?!0{16})[0-9a-f]{16}")
_LONGEST: Final = MAX_BYTES + 65536


@attrs.frozen
class LedgerEvent:
    """An event of a ledger, and its *payload* as JSON: in the current form the hashed bytes.

    *session* and *trace* are the ledger's; hashes are empty if the form has none.
    """

    event: Event
    session: str
    trace: str
    payload: bytes
    hash: str = ""
    previous: str = ""
    payload_hash: str = ""


class LedgerReader:
    """The ledger in the file at *place*: each call yields the events added since the last call.

    Hashes and the chain are checked while reading. An excised payload is its placeholder.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._file: BinaryIO | None = None
        self._lines: Follower | None = None
        self._old = False

    def __enter__(self) -> Self:
        """Begin; the file is opened on first use."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
            self._file = self._lines = None

    def __call__(self) -> Iterator[LedgerEvent]:
        """Yield the new events; raises `LedgerError`, and `FileNotFoundError` for a missing file."""
        if self._old:
            return
        if self._lines is None and not self._open():
            return
        if self._lines is None:
            self._old = True
            yield from _read_old_form(self.place)
            return
        for line in self._lines():
            try:
                event = UPCASTERS.present(line.event)
            except ValueError:
                why = f"event {line.seq} has a payload that is no JSON; verify the file"
                raise LedgerError(fault("LEDGER_UNSOUND", why, place=str(self.place))) from None
            hashes = line.envelope_hash, line.prev_envelope_hash, line.payload_hash
            yield LedgerEvent(event, line.session_id, line.trace_id, line.payload, *hashes)

    def _open(self) -> bool:
        """Open the file; return whether there is a first line yet, of any form."""
        if self._file is None:
            place, _ = split_source(self.place)
            with Folder.at(place.parent) as folder:
                self._file = folder.open(place.name)
        self._file.seek(0)
        first = self._file.readline(_LONGEST)
        if form_of(first) == FORMAT:
            self._lines = Follower(self._file, place=str(self.place), gaps=True)
        return first.endswith(b"\n")


def _read_old_form(place: Path) -> Iterator[LedgerEvent]:
    session, trace = "", ""
    for event in read(place):
        if not session:
            session, trace = _read_identity(place)
        span, parent = (
            _convert_span(session, event.span),
            _convert_span(session, event.parent) if event.parent else None,
        )
        payload = json.dumps(dict(event.payload), separators=(",", ":")).encode()
        yield LedgerEvent(attrs.evolve(event, span=span, parent=parent), session, trace, payload)


def _read_identity(place: Path) -> tuple[str, str]:
    """Return the session and its trace; the trace is derived from the session if the form has none."""
    file_, session = split_source(place)
    with Folder.at(file_.parent) as folder, folder.open(file_.name) as file:
        raw = file.readline(_LONGEST).rstrip(b"\n")
    row = UPCASTERS.row(raw, form_of(raw), f"{place}:1")
    session = session or str(row["session_id"])
    if TRACE_ID.fullmatch(trace := str(row["trace_id"])) and trace.strip("0"):
        return session, trace
    return session, sha256(f"deedbook-old-trace\n{session}\n{trace}".encode()).hexdigest()[:32]


def _convert_span(session: str, span: str) -> str:
    if _SPAN.fullmatch(span):
        return span
    return sha256(f"deedbook-old-span\n{session}\n{span}".encode()).hexdigest()[:16]
