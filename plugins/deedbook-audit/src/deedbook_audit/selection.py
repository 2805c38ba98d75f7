"""Which ledgers are to be verified, and what is missing of those that were recorded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from deedbook.format.errors import DeedbookError, describe
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.heads import Gap, Head, find_gaps, find_unrecorded, missing_file, read_heads
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import find_strays, is_empty
from deedbook_audit.verification.imports import changed

from .recollections import recollections
from .verification.agreement import disagreements
from .verification.answers import misquoted
from .verification.charters import check_charters
from .verification.uses import misused

COMPARISON: Final = "comparison"
"""The check of a comparison that could not be made."""
WORKSPACE: Final = "workspace"


class Audited(Protocol):
    """What an auditor is told of a workspace. The workspaces that the command line reads are such, too."""

    @property
    def root(self) -> Path:
        """The workspace's folder."""

    @property
    def state(self) -> Path:
        """Its state folder."""

    @property
    def checkpoints(self) -> Mapping[str, Any]:
        """The section of its settings that names the keys and witnesses of its log."""


@attrs.frozen
class StateFolder:
    """A state folder whose workspace is not at hand, or not to be believed: no settings are known."""

    state: Path
    checkpoints: Mapping[str, Any] = MappingProxyType({})

    @property
    def root(self) -> Path:
        """The folder that stands for the workspace."""
        return self.state.parent


@attrs.frozen
class Selection:
    """What is to be checked: the *files*, what is *lost* of those that were recorded, sessions that never began.

    *source* is the workspace, if there is one; *inside*: they are its own. *session* is the one session that was named.
    *notes* are what a reader has to know of how they were chosen, *unchecked* says why decisions cannot be checked.
    """

    files: Sequence[Path]
    lost: Sequence[Gap] = ()
    empty: Sequence[str] = ()
    source: Audited | None = None
    session: str | None = None
    inside: bool = True
    notes: Sequence[str] = ()
    unchecked: Sequence[str] = ()

    @property
    def size(self) -> int:
        """How many bytes the files have."""
        return sum(place.stat(follow_symlinks=False).st_size for place in self.files)


def select_all(source: Audited, notes: Sequence[str] = ()) -> Selection:
    """Select every ledger of a state folder, and every session that its workspace ledger knows."""
    heads = known_heads(source)  # before the files: they only grow
    names = sorted({*session_ids(source.state), *heads})
    each = [_session(source, name, heads.get(name, ())) for name in names]
    lost = [gap for one in each for gap in one.lost]
    lost += _compared("tasks", disagreements, source.state, names, every=True)
    for name, check in {"memory": recollections, "answers": misquoted, "approvals": misused}.items():
        lost += _compared(name, check, source.state, names)
    lost += _compared("imports", changed, source.state)
    charters = check_charters(source.state, names, every=True)
    lost += charters.gaps
    files = [*_own(own_ledger(source.state), begun=bool(names)), *(file for one in each for file in one.files)]
    empty = [name for one in each for name in one.empty]
    return Selection(files, lost, empty, source, notes=notes, unchecked=charters.unchecked)


def select_session(
    source: Audited, name: str, heads: Mapping[str, Sequence[Head]], notes: Sequence[str] = ()
) -> Selection:
    """Select the session *name*, with what the workspace ledger knows of it: *heads* are those of all sessions."""
    chosen = _session(source, name, heads.get(name, ()))
    checks = {"tasks": disagreements, "memory": recollections, "answers": misquoted, "approvals": misused}
    told = [gap for subject, check in checks.items() for gap in _compared(subject, check, source.state, [name])]
    charters = check_charters(source.state, [name])
    lost = [*chosen.lost, *told, *charters.gaps]
    return attrs.evolve(chosen, lost=lost, notes=notes, unchecked=charters.unchecked)


def session_ids(state: Path) -> list[str]:
    """Return the ids of all sessions of a *state* folder that have a folder, in order."""
    places = (state / "sessions").glob("*")
    return sorted(place.name for place in places if SESSION_ID.fullmatch(place.name) and place.is_dir())


def own_ledger(state: Path) -> Path:
    """Return where the workspace ledger of a *state* folder is."""
    return state / WORKSPACE / LEDGER_FILE


def session_ledger(state: Path, name: str) -> Path:
    """Return where the ledger of a session of a *state* folder is."""
    return state / "sessions" / name / LEDGER_FILE


def _own(place: Path, *, begun: bool) -> list[Path]:
    """Return the workspace ledger, if there is any; one without a byte is none where no session has *begun*, either.

    A process that dies before it writes the first line leaves such a file, and no session begins before that line.
    """
    unwritten = not begun and place.is_file() and not place.is_symlink() and not place.stat().st_size
    return [place] if place.exists() and not unwritten else []


def _compared(subject: str, check: Callable[..., Iterable[Gap]], *of: object, **how: object) -> list[Gap]:
    """Compare ledgers with each other about a *subject*; one whose content makes that impossible is a gap itself.

    What cannot be read is passed over: its own verification says what is wrong with it.
    """
    try:
        return list(check(*of, **how))
    except (DeedbookError, OSError):
        return []
    except Exception as problem:  # noqa: BLE001 - ledgers may hold anything, and the others are reported all the same
        return [Gap(subject, COMPARISON, "ledgers that can be compared", describe(problem))]


def known_heads(source: Audited) -> Mapping[str, list[Head]]:
    """Return the heads of every session that the workspace ledger knows, as far as it can be read."""
    heads: dict[str, list[Head]] = {}
    with suppress(DeedbookError):  # its own verification says what is wrong with it
        for head in read_heads(source.state):
            heads.setdefault(head.session, []).append(head)
    return heads


def _session(source: Audited, identity: str, heads: Sequence[Head]) -> Selection:
    """Choose a session: what is lost of it, whether it never began, and else its file."""
    place = session_ledger(source.state, identity)
    files = [place] if place.exists() or place.is_symlink() else []
    try:
        missing = list(find_gaps(source.state, heads))
        with Folder.at(place.parent) as folder:
            if is_empty(folder) and (missing or not find_strays(folder)):
                return Selection([], missing, [] if missing else [identity], source, identity)
        if files and not heads and (gap := find_unrecorded(source.state, identity)):
            return Selection(files, [gap], (), source, identity)
        missing = missing if files or missing else [Gap(identity, "file", "a ledger beside what else is there", "none")]
    except (DeedbookError, OSError):  # the file's own verification says what is wrong with it
        missing = [] if files or not heads else [missing_file(heads)]
    return Selection(files, missing, (), source, identity)
