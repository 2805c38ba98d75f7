"""The parent session, read from its ledger with every hash checked; the file is only read."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.canonical import MAX_BYTES
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import Line, first_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.lines import Lines
from deedbook.format.sealed import digests_in, open_values

_LONGEST: Final = MAX_BYTES + 65536
_TAKEN_OUT: Final = b'{"$excised":"%b"}'


class ValueMissing(Exception):  # noqa: N818 - a state of a value
    """A recorded value is missing: a sealed value without its bytes, or an excised payload."""


@attrs.frozen(eq=False)
class ParentSession:
    """A session from its ledger: *events* in the order of ``seq``, each with its envelope hash in *hashes*."""

    session: str
    place: Path
    events: Sequence[Event]
    hashes: Sequence[str]

    def open_value(self, value: Any) -> Any:
        """Return *value* with its sealed parts opened; raises `ValueMissing` if they are missing."""
        if next(digests_in(value), None) is None:
            return value
        try:
            with Folder.at(self.place.parent) as folder:
                return open_values(folder, value)
        except (DeedbookError, OSError) as problem:
            raise ValueMissing(str(problem)) from None


def read_parent(place: Path) -> ParentSession:
    """Read the session's ledger at *place*; raises `LedgerError` if it is not sound, or of an older form."""
    events, hashes, session = [], [], ""
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        for line in _check_lines(Lines(file, _LONGEST), str(place)):
            session = line.session_id
            events.append(line.event)
            hashes.append(line.envelope_hash)
    if not events or events[0].type != "session.start":
        why = "it holds no session; name the ledger of one"
        raise LedgerError(fault("FORK_REFUSED", why, place=str(place)))
    return ParentSession(session, place, events, hashes)


def _check_lines(lines: Lines, place: str) -> Iterator[Line]:
    before = ""
    for number, raw in enumerate(lines):
        if not number and not raw.startswith(b'{"schema_version":"1.1"'):
            why = "a ledger of an older form has no chain of hashes to go on from; only format 1.1 is forked"
            raise LedgerError(fault("FORK_REFUSED", why, place=place))
        line = split_line(raw, place=f"{place}:{number + 1}")
        before = before or first_hash(line.session_id)
        whole = line.sound or _is_excised(line)
        if line.seq != number or line.prev_envelope_hash != before or not whole:
            why = f"event {number} is not what was written; `deedbook verify` says more"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
        before = line.envelope_hash
        yield line


def _is_excised(line: Line) -> bool:
    """Return whether the payload was excised from the line, which keeps its hash."""
    header = sha256(line.header).hexdigest() == line.envelope_hash
    return header and line.payload == _TAKEN_OUT % line.payload_hash.encode()
