"""Compares the charters that ledgers name with the workspace ledger and with the stored charters.

A ledger is sound under any charter. So a charter without a ``ledger.charter`` event came into force without a record,
and a charter whose bytes differ from its digest was changed.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from deedbook.charter.store import Store
from deedbook.format.canonical import decode
from deedbook.format.errors import DeedbookError
from deedbook.format.events import Line, split_line
from deedbook.format.files import Folder
from deedbook.format.heads import MAX_LINE, Gap
from deedbook.format.lines import Lines
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.sealed import open_values

_HEADER: Final = 512
_CHARTER: Final = "ledger.charter"
_NAMING: Final = re.compile(
    rb'"event_type":"(?:ledger\.charter|session\.(?:start|resumed)|system\.boot|approval\.requested'
    rb"|task\.(?:created|updated|started)|memory\.(?:proposed|retracted))\""
)
"""The events that name the charter in force."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_WORKSPACE: Final = "workspace"
_FOLDER: Final = "charters"
_HEADS: Final = re.compile(rb'"event_type":"ledger\.session"')
_NEVER: Final = "never"  # later than any time
_NAMELESS: Final = "the workspace ledger names no charter"
NOT_STORED: Final = "is named, and is not kept here"
"""The end of the reason why decisions under a missing charter cannot be checked."""
_LOST: Final = f"a {_CHARTER} names a charter by a sealed value that is gone"


class CharterReference(NamedTuple):
    """An event that names the charter *digest*: its *line*, from 1, and its time. *digest* is empty if it is lost."""

    line: int
    ts: str
    digest: str


@attrs.define
class CharterRecords:
    """The charters in the workspace ledger: the first ``ledger.charter`` and the earliest time, by digest.

    *unknown* says why a record may name any charter: a sealed digest was erased, or the ledger records nothing under a
    charter, as one that was begun to close a session.
    """

    first: dict[str, int] = attrs.field(factory=dict)
    earliest: dict[str, str] = attrs.field(factory=dict)
    gaps: list[Gap] = attrs.field(factory=list)
    unknown: str = ""

    def add(self, record: CharterReference) -> None:
        """Apply a ``ledger.charter``."""
        if not record.digest:
            self.unknown = _LOST
            return
        self.first.setdefault(record.digest, record.line)
        self.earliest[record.digest] = min(record.ts, self.earliest.get(record.digest, record.ts))

    def has(self, digest: str) -> bool:
        """Return whether a record may name the charter *digest*."""
        return digest in self.first or bool(self.unknown)

    def has_earlier(self, reference: CharterReference) -> bool:
        """Return whether a record that is not later may name the same charter."""
        return bool(self.unknown) or self.earliest.get(reference.digest, _NEVER) <= reference.ts

    def line(self, digest: str) -> int:
        """Return the line of the first record that names *digest*; a line beyond any file if there is none."""
        return self.first.get(digest, 1 << 62)


@attrs.frozen
class CharterCheck:
    """The result of checking charters: *gaps* are contradictions, *unchecked* says why decisions were not checked."""

    gaps: tuple[Gap, ...] = ()
    unchecked: tuple[str, ...] = ()


def check_charters(state: Path, sessions: Collection[str], *, every: bool = False) -> CharterCheck:
    """Check the references to charters in the workspace ledger and in *sessions*, and the charters themselves.

    Every charter that a session names needs a ``ledger.charter`` that is not later: by its time, or by its position
    before the session's first head, in case a clock was set back. With *every*, the rule applies to the workspace
    ledger as well, and every stored charter is checked. An unreadable ledger is skipped: its verification reports it.
    """
    in_force = (
        _read_current(state) if every else None
    )  # before the records: a charter is recorded before it is in force
    records = _read_records(state / _WORKSPACE)
    if records is None:
        return CharterCheck()
    gaps = [*(records.gaps if every else ())]
    if in_force is not None and not records.has(in_force):
        gaps.append(Gap(_WORKSPACE, "charter in force", f"a {_CHARTER} that names {in_force}", "none"))
    named = dict.fromkeys(records.first if every else ())
    heads = cache(lambda: _read_first_heads(state / _WORKSPACE))
    for session in sessions:
        for reference in _read_references(state / "sessions" / session):
            named.setdefault(reference.digest)
            if not records.has_earlier(reference) and records.line(reference.digest) > heads().get(session, 0):
                gaps.append(_build_gap(session, reference))
    wrong = dict(_find_wrong(state, [*named, *(_list_stored(state) if every else ())]))
    gaps += (gap for gap in wrong.values() if gap)
    missing = (f"charter {name} {NOT_STORED}" for name in named if name in wrong and not wrong[name])
    return CharterCheck(tuple(gaps), (*missing, *([records.unknown] if records.unknown and named else [])))


def _build_gap(ledger: str, reference: CharterReference) -> Gap:
    return Gap(
        ledger, f"charter of line {reference.line}", f"{_CHARTER} before it that names {reference.digest}", "none"
    )


# --- references -----------------------------------------------------------------------------------------------------


def _read_records(place: Path) -> CharterRecords | None:
    """Return the charters in the workspace ledger; ``None`` if there is no such ledger."""
    records = CharterRecords()
    try:
        for number, line in _lines(place, _NAMING):
            reference = _build_reference(place, number, line)
            if line.event_type == _CHARTER:
                records.add(reference)
            elif reference.digest and not records.has(reference.digest):
                records.gaps.append(_build_gap(_WORKSPACE, reference))
    except FileNotFoundError:
        return None
    except (DeedbookError, OSError, ValueError):
        return records if records.first else None
    if not (records.first or records.gaps):
        records.unknown = records.unknown or _NAMELESS
    return records


def _read_references(place: Path) -> list[CharterReference]:
    """Return the first event of a session that names a charter, for each charter."""
    found: dict[str, CharterReference] = {}
    with suppress(DeedbookError, OSError, ValueError):
        for line in _lines(place, _NAMING):
            reference = _build_reference(place, *line)
            if reference.digest:
                found.setdefault(reference.digest, reference)
    return list(found.values())


def _read_first_heads(place: Path) -> dict[str, int]:
    """Return the line of the workspace ledger with the first head of each session."""
    found: dict[str, int] = {}
    with suppress(DeedbookError, OSError, ValueError):
        for number, line in _lines(place, _HEADS):
            session = decode(line.payload).get("session_id")
            if isinstance(session, str):
                found.setdefault(session, number)
    return found


def _lines(place: Path, wanted: re.Pattern[bytes]) -> Iterator[tuple[int, Line]]:
    with Folder.at(place) as folder, folder.open(LEDGER_FILE) as file:
        for number, raw in enumerate(Lines(file, MAX_LINE), 1):
            if wanted.search(raw, 0, _HEADER):
                yield number, split_line(raw, place=f"{place / LEDGER_FILE}:{number}")


def _build_reference(place: Path, number: int, line: Line) -> CharterReference:
    payload: Any = decode(line.payload)
    value = payload.get("digest" if line.event_type == _CHARTER else "charter")
    if isinstance(value, dict):
        try:
            with Folder.at(place) as folder:
                value = open_values(folder, value)
        except (DeedbookError, OSError, ValueError):
            value = None
    return CharterReference(number, line.ts, value if isinstance(value, str) and _DIGEST.fullmatch(value) else "")


# --- stored charters ------------------------------------------------------------------------------------------------


def _read_current(state: Path) -> str | None:
    """Return the digest of the charter in force, from the state folder."""
    with suppress(DeedbookError, OSError), Folder.at(state) as folder:
        return Store(folder).current()
    return None


def _list_stored(state: Path) -> list[str]:
    """Return the digests of stored charters."""
    with suppress(DeedbookError, OSError), Folder.at(state) as folder:
        return sorted(name for name, _ in folder.kinds(_FOLDER) if _DIGEST.fullmatch(name))
    return []


def _find_wrong(state: Path, digests: Collection[str]) -> Iterator[tuple[str, Gap | None]]:
    """Yield each digest whose charter is missing (without a gap) or wrong (with a gap)."""
    with suppress(FileNotFoundError), Folder.at(state) as folder:
        store = Store(folder)
        for digest in dict.fromkeys(digests):
            try:
                charter = store.find(digest)
                if charter is None:
                    yield digest, None
                else:
                    charter.refuse_uncanonical()
            except (DeedbookError, OSError) as problem:
                expected = f"a charter whose bytes have the digest {digest}"
                yield digest, Gap(f"charter {digest[:12]}", "charter", expected, str(problem))
