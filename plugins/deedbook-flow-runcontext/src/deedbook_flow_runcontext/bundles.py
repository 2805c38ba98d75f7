"""Bundles: one JSON file with the ledger of a session, from which the session can go on in another state folder.

| member | holds |
|---|---|
| ``session``, ``run`` | the session, and the run whose context the bundle states |
| ``head`` | the envelope hash of the last event |
| ``context`` | the state of the run at the head, with all artifacts |
| ``events`` | the lines of the ledger, as they were written |
| ``sealed`` | in a bundle that hands over: the sealed values, salt and bytes, in Base64, by digest |
| ``digests`` | SHA-256 of the canonical ``context``, and of all lines |

`parse_bundle` checks the hashes of each line, the links between the lines, the digests, and that the events give the
context. So an edited or cut bundle is refused. It does not prove who wrote the ledger.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook import Event
from deedbook.format.canonical import digest, encode
from deedbook.format.context import ContextFold, RunContext
from deedbook.format.errors import DeedbookError, LedgerError, fault
from deedbook.format.events import Line, first_hash, split_line
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.jsontext import load
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.sealed import digests_in

VERSION: Final = "v3"
"""Bundles of v2 have a context and a head, and no events: they are only compared with a ledger."""
MAX_BUNDLE: Final = 64 * 1024 * 1024
"""The number of bytes of the largest bundle."""

_DEPTH: Final = 80
_NODES: Final = 2_000_000
_MEMBERS: Final = frozenset({"schema_version", "session", "run", "head", "context", "events", "sealed", "digests"})
_LARGEST_SEALED: Final = 16 * 1024 * 1024 + 32


@attrs.frozen(eq=False)
class SessionBundle:
    """A checked bundle: the *lines* of a session's ledger, the *context* of one *run*, and *sealed* values.

    *digest* is the SHA-256 of the file.
    """

    session: str
    lines: Sequence[Line]
    events: Sequence[Event]
    raw: bytes
    context: RunContext
    sealed: Mapping[str, bytes]
    digest: str = ""

    @property
    def run(self) -> str:
        """The run whose context the bundle states."""
        return self.context.run

    @property
    def head(self) -> str:
        """The envelope hash of the last event."""
        return self.lines[-1].envelope_hash

    @property
    def charters(self) -> frozenset[str]:
        """The digests of the charters under which the session ran."""
        began = [event for event in self.events if event.type in ("session.start", "session.resumed")]
        return frozenset(charter for event in began if isinstance(charter := event.payload.get("charter"), str))

    def encode(self) -> bytes:
        """Return the bytes of the file; raises `LedgerError` (``BUNDLE_REFUSED``) if they are too many."""
        context = self.context.as_json()
        raw = encode(
            {
                "schema_version": VERSION,
                "session": self.session,
                "run": self.run,
                "head": self.head,
                "context": context,
                "events": self.raw.decode().split("\n")[:-1],
                "sealed": {name: base64.b64encode(data).decode() for name, data in self.sealed.items()},
                "digests": {"context": digest(encode(context, _DEPTH, _NODES)), "events": digest(self.raw)},
            },
            _DEPTH,
            _NODES,
        )
        if len(raw) > MAX_BUNDLE:
            why = f"session {self.session} needs a bundle of {len(raw)} bytes; at most {MAX_BUNDLE} are read"
            raise _refusal(why)
        return raw


def read_session(folder: Folder, run: str, *, sealed: bool) -> SessionBundle:
    """Return the session in *folder*, with the context of *run*, as a bundle; with its *sealed* values if asked.

    Raises `LedgerError` (``LEDGER_UNSOUND``), and `IntakeError` for a ledger that is too large for a bundle.
    """
    raw = read_ledger(folder)
    lines = list(_check_lines(raw, f"{folder.path}/{LEDGER_FILE}"))
    events = [line.event for line in lines]
    values = dict(_read_sealed(folder, events)) if sealed else {}
    return SessionBundle(lines[0].session_id, lines, events, raw, fold(ContextFold(), events)[run], values)


def read_ledger(folder: Folder) -> bytes:
    """Return the whole lines of the ledger in *folder*."""
    raw = folder.read(LEDGER_FILE, limit=MAX_BUNDLE)
    return raw[: raw.rfind(b"\n") + 1]


def _read_sealed(folder: Folder, events: Sequence[Event]) -> Iterator[tuple[str, bytes]]:
    for name in sorted({name for event in events for name in digests_in(event.payload)}):
        if folder.exists(f"sealed/{name}"):  # an erased value is not there
            yield name, folder.read(f"sealed/{name}", limit=_LARGEST_SEALED)


def parse_bundle(raw: bytes, place: str) -> SessionBundle:
    """Return the bundle in the bytes of a file at *place*; raises `LedgerError` (``BUNDLE_REFUSED``)."""
    try:
        return _parse(raw, place)
    except LedgerError as problem:
        if problem.error.code == "BUNDLE_REFUSED":
            raise
        raise LedgerError(fault("BUNDLE_REFUSED", str(problem.error.message), place=place)) from None
    except (DeedbookError, ValueError, RecursionError) as problem:
        raise _refusal(f"not a bundle: {problem}", place) from None


def _parse(raw: bytes, place: str) -> SessionBundle:
    stated = load(raw)
    if not isinstance(stated, dict) or stated.get("schema_version") != VERSION:
        raise _refusal("not a bundle of version v3; save it again with this version", place)
    if stated.keys() != _MEMBERS or encode(stated, _DEPTH, _NODES) != raw:
        raise _refusal("the bundle is not as it was saved: members, or their form, were changed", place)
    texts = _texts(stated["events"], place)
    ledger = "".join(f"{text}\n" for text in texts).encode()
    lines = list(_check_lines(ledger, place))
    events = [line.event for line in lines]
    run, session = stated["run"], lines[0].session_id
    context = fold(ContextFold(), events).get(run) if isinstance(run, str) else None
    found = SessionBundle(
        session, lines, events, ledger, _require(context, place), _parse_sealed(stated["sealed"], events, place),
        digest(raw),
    )  # fmt: skip
    if found.encode() != raw:
        why = "the bundle differs from its own events: its context, session, head or digests were changed"
        raise _refusal(why, place)
    return found


def _texts(events: Any, place: str) -> list[str]:
    if not isinstance(events, list) or not events or not all(isinstance(each, str) for each in events):
        raise _refusal("the bundle has no events", place)
    if any("\n" in each for each in events):
        raise _refusal("an event of the bundle is more than one line", place)
    return events


def _require(context: RunContext | None, place: str) -> RunContext:
    if context is None:
        raise _refusal("no event of the bundle begins its run", place)
    return context


def _parse_sealed(sealed: Any, events: Sequence[Event], place: str) -> dict[str, bytes]:
    named = {name for event in events for name in digests_in(event.payload)}
    found: dict[str, bytes] = {}
    if not isinstance(sealed, dict):
        raise _refusal("the sealed values of the bundle are no object", place)
    for name, text in sealed.items():
        try:
            found[name] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _refusal("a sealed value of the bundle is not in Base64", place) from None
        if name not in named or digest(found[name]) != name:
            raise _refusal(f"the sealed value {name[:64]!r} is not one of its events, or was changed", place)
    return found


def _check_lines(raw: bytes, place: str) -> Iterator[Line]:
    """Yield the lines of a ledger, after checking its hashes and links; raises `LedgerError`."""
    before = ""
    session = ""
    for number, text in enumerate(raw.split(b"\n")[:-1]):
        line = split_line(text, place=f"{place}: event {number}")
        session = session or line.session_id
        before = before or first_hash(session)
        wrong = line.session_id != session or line.seq != number or line.prev_envelope_hash != before
        if wrong or not line.sound or (number == 0) != (line.event_type == "session.start"):
            why = f"event {number} is not what was written, or an event before it is missing"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))
        before = line.envelope_hash
        yield line
    if not before:
        raise LedgerError(fault("LEDGER_UNSOUND", "it has no event", place=place))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of the bundle at *path*; raises `DeedbookError` for a link, and for too many bytes."""
    with Folder.at(path.parent) as folder:
        return folder.read(path.name, limit=MAX_BUNDLE)


def _refusal(why: str, place: str | None = None) -> LedgerError:
    return LedgerError(fault("BUNDLE_REFUSED", why, place=place))
