"""The ledgers to verify, and what is missing of the recorded ones."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import attrs

from deedbook.format.errors import DeedbookError, describe
from deedbook.format.events import SESSION_ID
from deedbook.format.files import Folder
from deedbook.format.heads import Gap, Head, find_gaps, find_unrecorded, list_heads, missing_file
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import find_strays
from deedbook_audit.verification.imports import compare_imports

from .memory_sources import compare_memory_sources
from .verification.agreement import compare_tasks
from .verification.answers import compare_answers
from .verification.charters import check_charters
from .verification.uses import compare_uses

COMPARISON: Final = "comparison"
"""The check of a comparison that could not be made."""
WORKSPACE: Final = "workspace"


class AuditedWorkspace(Protocol):
    """What an auditor needs of a workspace; the workspaces that the command line reads also fit it."""

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
    """A state folder without its workspace, or with one that is not trusted: no settings are known."""

    state: Path
    checkpoints: Mapping[str, Any] = MappingProxyType({})

    @property
    def root(self) -> Path:
        """The folder in place of the workspace."""
        return self.state.parent


@attrs.frozen
class Selection:
    """The ledgers to check: *files*, what is *lost* of the recorded ones, and *empty* sessions without events.

    *source* is the workspace, if there is one; *inside*: the files belong to it. *session* is the one named session.
    *notes* tell the reader about the selection, *unchecked* says why decisions cannot be checked.
    """

    files: Sequence[Path]
    lost: Sequence[Gap] = ()
    empty: Sequence[str] = ()
    source: AuditedWorkspace | None = None
    session: str | None = None
    inside: bool = True
    notes: Sequence[str] = ()
    unchecked: Sequence[str] = ()

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return sum(place.stat(follow_symlinks=False).st_size for place in self.files)


def select_all(source: AuditedWorkspace, notes: Sequence[str] = ()) -> Selection:
    """Select every ledger of a state folder, and every session that its workspace ledger names."""
    heads = read_heads(source)  # before the files, which only grow
    names = sorted({*list_session_ids(source.state), *heads})
    each = [_select(source, name, heads.get(name, ())) for name in names]
    lost = [gap for one in each for gap in one.lost]
    lost += _compare("tasks", compare_tasks, source.state, names, every=True)
    for name, check in {
        "memory": compare_memory_sources,
        "answers": compare_answers,
        "approvals": compare_uses,
    }.items():
        lost += _compare(name, check, source.state, names)
    lost += _compare("imports", compare_imports, source.state)
    charters = check_charters(source.state, names, every=True)
    lost += charters.gaps
    files = [
        *_find_workspace_ledger(get_workspace_ledger(source.state), has_sessions=bool(names)),
        *(file for one in each for file in one.files),
    ]
    empty = [name for one in each for name in one.empty]
    return Selection(files, lost, empty, source, notes=notes, unchecked=charters.unchecked)


def select_session(
    source: AuditedWorkspace, name: str, heads: Mapping[str, Sequence[Head]], notes: Sequence[str] = ()
) -> Selection:
    """Select the session *name*, with what the workspace ledger records of it; *heads* are those of all sessions."""
    chosen = _select(source, name, heads.get(name, ()))
    checks = {
        "tasks": compare_tasks,
        "memory": compare_memory_sources,
        "answers": compare_answers,
        "approvals": compare_uses,
    }
    compared = [gap for subject, check in checks.items() for gap in _compare(subject, check, source.state, [name])]
    charters = check_charters(source.state, [name])
    lost = [*chosen.lost, *compared, *charters.gaps]
    return attrs.evolve(chosen, lost=lost, notes=notes, unchecked=charters.unchecked)


def list_session_ids(state: Path) -> list[str]:
    """Return the ids of all sessions of a *state* folder that have a folder, in order."""
    places = (state / "sessions").glob("*")
    return sorted(place.name for place in places if SESSION_ID.fullmatch(place.name) and place.is_dir())


def get_workspace_ledger(state: Path) -> Path:
    """Return the path of the workspace ledger in a *state* folder."""
    return state / WORKSPACE / LEDGER_FILE


def get_session_ledger(state: Path, name: str) -> Path:
    """Return the path of the ledger of a session in a *state* folder."""
    return state / "sessions" / name / LEDGER_FILE


def _find_workspace_ledger(place: Path, *, has_sessions: bool) -> list[Path]:
    """Return the workspace ledger, if there is one; an empty file counts only if there are sessions.

    A process that dies before it writes the first line leaves an empty file, and no session begins before that line.
    """
    unwritten = not has_sessions and place.is_file() and not place.is_symlink() and not place.stat().st_size
    return [place] if place.exists() and not unwritten else []


def _compare(subject: str, check: Callable[..., Iterable[Gap]], *of: object, **how: object) -> list[Gap]:
    """Compare ledgers about a *subject*; a comparison that their content makes impossible is a gap.

    An unreadable ledger is skipped: its own verification reports it.
    """
    try:
        return list(check(*of, **how))
    except (DeedbookError, OSError):
        return []
    except Exception as problem:  # noqa: BLE001 - ledgers may hold anything, and must not stop the others
        return [Gap(subject, COMPARISON, "ledgers that can be compared", describe(problem))]


def read_heads(source: AuditedWorkspace) -> Mapping[str, list[Head]]:
    """Return the heads of every session that the workspace ledger names, as far as it can be read."""
    heads: dict[str, list[Head]] = {}
    with suppress(DeedbookError):  # the ledger's own verification reports it
        for head in list_heads(source.state):
            heads.setdefault(head.session, []).append(head)
    return heads


def _select(source: AuditedWorkspace, identity: str, heads: Sequence[Head]) -> Selection:
    """Select a session: what is lost of it, whether it is empty, and else its file."""
    place = get_session_ledger(source.state, identity)
    files = [place] if place.exists() or place.is_symlink() else []
    try:
        missing = list(find_gaps(source.state, heads))
        with Folder.at(place.parent) as folder:
            if _is_empty(folder) and (missing or not find_strays(folder)):
                return Selection([], missing, [] if missing else [identity], source, identity)
        if files and not heads and (gap := find_unrecorded(source.state, identity)):
            return Selection(files, [gap], (), source, identity)
        missing = missing if files or missing else [Gap(identity, "file", "a ledger beside what else is there", "none")]
    except (DeedbookError, OSError):  # the file's own verification reports it
        missing = [] if files or not heads else [missing_file(heads)]
    return Selection(files, missing, (), source, identity)


def _is_empty(folder: Folder) -> bool:
    """Return whether a session's *folder* holds no event and no byte of one: no ledger, or an empty one."""
    try:
        with folder.open(LEDGER_FILE) as file:
            return not os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return True
