"""The charters that ledgers name, held against the workspace ledger and against the charters that are kept.

A ledger is sound whatever charter it names. So a charter that no ``ledger.charter`` event names came into force without
a record, and one whose bytes are not what its digest says was changed afterwards.
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
    rb'"event_type":"(?:ledger\.charter|session\.start|system\.boot|approval\.requested'
    rb"|task\.(?:created|updated|started)|memory\.(?:proposed|retracted))\""
)
"""The events that say which charter is in force."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_WORKSPACE: Final = "workspace"
_FOLDER: Final = "charters"
_HEADS: Final = re.compile(rb'"event_type":"ledger\.session"')
_NEVER: Final = "never"  # later than any time
_NAMELESS: Final = "the workspace ledger names no charter"
NOT_KEPT: Final = "is named, and is not kept here"
"""How the reason ends for which decisions under a charter cannot be checked, where the charter is missing."""
_LOST: Final = f"a {_CHARTER} names a charter by a sealed value that is gone"


class Naming(NamedTuple):
    """An event that names the charter *digest*: its *line*, from 1, and its time. *digest* is empty if it is lost."""

    line: int
    ts: str
    digest: str


@attrs.define
class Records:
    """What the workspace ledger says: the first ``ledger.charter`` and the earliest time, by digest.

    *unknown* says why a charter may be named by a record and nobody can tell: the value is sealed and gone, or there
    is no record of anything that happens under a charter, as in a ledger that was begun to close a session.
    """

    first: dict[str, int] = attrs.field(factory=dict)
    earliest: dict[str, str] = attrs.field(factory=dict)
    gaps: list[Gap] = attrs.field(factory=list)
    unknown: str = ""

    def add(self, record: Naming) -> None:
        """Take in a ``ledger.charter``."""
        if not record.digest:
            self.unknown = _LOST
            return
        self.first.setdefault(record.digest, record.line)
        self.earliest[record.digest] = min(record.ts, self.earliest.get(record.digest, record.ts))

    def has(self, digest: str) -> bool:
        """Return whether a record may name the charter *digest*."""
        return digest in self.first or bool(self.unknown)

    def precede(self, naming: Naming) -> bool:
        """Return whether a record that is not later may name the same charter."""
        return bool(self.unknown) or self.earliest.get(naming.digest, _NEVER) <= naming.ts

    def line(self, digest: str) -> int:
        """Return the line of the first record that names *digest*; one that no file has, where there is none."""
        return self.first.get(digest, 1 << 62)


@attrs.frozen
class Checked:
    """What came of looking at charters: *gaps* are contradictions, *unchecked* says why decisions were not checked."""

    gaps: tuple[Gap, ...] = ()
    unchecked: tuple[str, ...] = ()


def check_charters(state: Path, sessions: Collection[str], *, every: bool = False) -> Checked:
    """Check what the workspace ledger of a *state* folder and *sessions* say of charters, and the charters themselves.

    Every charter that a session names is named by a ``ledger.charter`` that is not later: by its time, or by its place
    before the session's first head, where a clock was set back. With *every* the workspace ledger is held to the same
    rule, and every charter that is kept is looked at. What cannot be read is passed over: its own verification says
    what is wrong with it.
    """
    in_force = _in_force(state) if every else None  # before the records: a charter is recorded first
    records = _records(state / _WORKSPACE)
    if records is None:
        return Checked()
    gaps = [*(records.gaps if every else ())]
    if in_force is not None and not records.has(in_force):
        gaps.append(Gap(_WORKSPACE, "charter in force", f"a {_CHARTER} that names {in_force}", "none"))
    named = dict.fromkeys(records.first if every else ())
    heads = cache(lambda: _first_heads(state / _WORKSPACE))
    for session in sessions:
        for naming in _first_of_each(state / "sessions" / session):
            named.setdefault(naming.digest)
            if not records.precede(naming) and records.line(naming.digest) > heads().get(session, 0):
                gaps.append(_unrecorded(session, naming))
    wrong = dict(_wrong(state, [*named, *(_kept(state) if every else ())]))
    gaps += (gap for gap in wrong.values() if gap)
    missing = (f"charter {name} {NOT_KEPT}" for name in named if name in wrong and not wrong[name])
    return Checked(tuple(gaps), (*missing, *([records.unknown] if records.unknown and named else [])))


def _unrecorded(ledger: str, naming: Naming) -> Gap:
    return Gap(ledger, f"charter of line {naming.line}", f"{_CHARTER} before it that names {naming.digest}", "none")


# --- what ledgers say -------------------------------------------------------------------------------------------------


def _records(place: Path) -> Records | None:
    """Return what the workspace ledger says of charters; ``None`` if there is no such ledger."""
    records = Records()
    try:
        for number, line in _lines(place, _NAMING):
            naming = _naming(place, number, line)
            if line.event_type == _CHARTER:
                records.add(naming)
            elif naming.digest and not records.has(naming.digest):
                records.gaps.append(_unrecorded(_WORKSPACE, naming))
    except FileNotFoundError:
        return None
    except (DeedbookError, OSError, ValueError):
        return records if records.first else None
    if not (records.first or records.gaps):
        records.unknown = records.unknown or _NAMELESS
    return records


def _first_of_each(place: Path) -> list[Naming]:
    """Return the first event of a session that names a charter, for each charter that it names."""
    found: dict[str, Naming] = {}
    with suppress(DeedbookError, OSError, ValueError):
        for line in _lines(place, _NAMING):
            naming = _naming(place, *line)
            if naming.digest:
                found.setdefault(naming.digest, naming)
    return list(found.values())


def _first_heads(place: Path) -> dict[str, int]:
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


def _naming(place: Path, number: int, line: Line) -> Naming:
    said: Any = decode(line.payload)
    value = said.get("digest" if line.event_type == _CHARTER else "charter")
    if isinstance(value, dict):
        try:
            with Folder.at(place) as folder:
                value = open_values(folder, value)
        except (DeedbookError, OSError, ValueError):
            value = None
    return Naming(number, line.ts, value if isinstance(value, str) and _DIGEST.fullmatch(value) else "")


# --- what is kept -----------------------------------------------------------------------------------------------------


def _in_force(state: Path) -> str | None:
    """Return the digest of the charter that the state folder says is in force."""
    with suppress(DeedbookError, OSError), Folder.at(state) as folder:
        return Store(folder).current()
    return None


def _kept(state: Path) -> list[str]:
    """Return the digests under which something is kept."""
    with suppress(DeedbookError, OSError), Folder.at(state) as folder:
        return sorted(name for name, _ in folder.kinds(_FOLDER) if _DIGEST.fullmatch(name))
    return []


def _wrong(state: Path, digests: Collection[str]) -> Iterator[tuple[str, Gap | None]]:
    """Yield each digest under which no charter, or another one, is kept; without a gap where there is nothing."""
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
