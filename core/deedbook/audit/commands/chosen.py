"""Which ledgers are to be verified, and what is missing of those that were recorded."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from deedbook.format.heads import Gap, Head
    from deedbook.workspace.declarations import Workspace

COMPARISON: Final = "comparison"
"""The check of a comparison that could not be made."""


@attrs.frozen
class Chosen:
    """What is to be checked: the *files*, what is *lost* of those that were recorded, sessions that never began.

    *source* is the workspace, if there is one; *inside*: they are its own. *session* is the one session that was named.
    *notes* are what a reader has to know of how they were chosen, *unchecked* says why decisions cannot be checked.
    """

    files: "Sequence[Path]"
    lost: "Sequence[Gap]" = ()
    empty: "Sequence[str]" = ()
    source: "Workspace | None" = None
    session: str | None = None
    inside: bool = True
    notes: "Sequence[str]" = ()
    unchecked: "Sequence[str]" = ()


def every(workspace: str) -> Chosen:
    """Choose every ledger, and every session that the workspace ledger knows."""
    from deedbook.cli.ledgers import standing

    return _every(*standing(workspace))


def folder(name: str) -> Chosen | None:
    """Choose every ledger of the state folder that *name* is, with its workspace if that is above it, or ``None``."""
    from pathlib import Path

    from deedbook.cli.ledgers import is_state, known_by

    place = Path(name).absolute()
    return _every(*known_by(place, place.parent)) if is_state(place) else None


def _every(source: "Workspace", notes: "Sequence[str]") -> Chosen:
    from deedbook.audit.recollections import recollections
    from deedbook.audit.verification.agreement import disagreements
    from deedbook.audit.verification.answers import misquoted
    from deedbook.audit.verification.charters import check_charters
    from deedbook.audit.verification.taken_in import changed
    from deedbook.audit.verification.uses import misused
    from deedbook.cli.ledgers import own, session_ids

    heads = _heads(source)  # before the files: they only grow
    names = sorted({*session_ids(source), *heads})
    each = [_session(source, name, heads.get(name, ())) for name in names]
    lost = [gap for one in each for gap in one.lost]
    lost += _compared("tasks", disagreements, source.state, names, every=True)
    for name, check in {"memory": recollections, "answers": misquoted, "approvals": misused}.items():
        lost += _compared(name, check, source.state, names)
    lost += _compared("imports", changed, source.state)
    charters = check_charters(source.state, names, every=True)
    lost += charters.gaps
    files = [*_own(own(source), begun=bool(names)), *(file for one in each for file in one.files)]
    empty = [name for one in each for name in one.empty]
    return Chosen(files, lost, empty, source, notes=notes, unchecked=charters.unchecked)


def _own(place: "Path", *, begun: bool) -> "list[Path]":
    """Return the workspace ledger, if there is any; one without a byte is none where no session has *begun*, either.

    A process that dies before it writes the first line leaves such a file, and no session begins before that line.
    """
    unwritten = not begun and place.is_file() and not place.is_symlink() and not place.stat().st_size
    return [place] if place.exists() and not unwritten else []


def one(workspace: str, name: str) -> Chosen:
    """Choose one ledger; if it is that of a session of this workspace, with what the workspace ledger knows of it."""
    from deedbook.audit.recollections import recollections
    from deedbook.audit.verification.agreement import disagreements
    from deedbook.audit.verification.answers import misquoted
    from deedbook.audit.verification.charters import check_charters
    from deedbook.audit.verification.uses import misused
    from deedbook.cli.ledgers import own, session_file, session_named, standing
    from deedbook.format.errors import DeedbookError
    from deedbook.format.upcasting.naming import parted

    source, notes = None, list[str]()
    with suppress(DeedbookError):  # a file needs no workspace
        source, notes = standing(workspace)
    heads = _heads(source) if source else {}
    identity = session_named(source, name, heads) if source else None
    if source is None or identity is None:
        file, _ = parted(session_file(workspace, name))  # of an older form, which is verified whole
        inside = source is not None and own(source).exists() and file.resolve() == own(source).resolve()
        return Chosen([file], source=source, inside=inside, notes=notes if inside else ())
    chosen = _session(source, identity, heads.get(identity, ()))
    named: list[str] = [identity]
    told: list[Gap] = []
    checks = {"tasks": disagreements, "memory": recollections, "answers": misquoted, "approvals": misused}
    for subject, check in checks.items():
        told += _compared(subject, check, source.state, named)
    charters = check_charters(source.state, named)
    lost = [*chosen.lost, *told, *charters.gaps]
    return attrs.evolve(chosen, lost=lost, notes=notes, unchecked=charters.unchecked)


def _compared(subject: str, check: "Callable[..., Iterable[Gap]]", *of: object, **how: object) -> "list[Gap]":
    """Compare ledgers with each other about a *subject*; one whose content makes that impossible is a gap itself.

    What cannot be read is passed over: its own verification says what is wrong with it.
    """
    from deedbook.format.errors import DeedbookError, describe
    from deedbook.format.heads import Gap

    try:
        return list(check(*of, **how))
    except (DeedbookError, OSError):
        return []
    except Exception as problem:  # noqa: BLE001 - ledgers may hold anything, and the others are reported all the same
        return [Gap(subject, COMPARISON, "ledgers that can be compared", describe(problem))]


def _heads(source: "Workspace") -> "Mapping[str, list[Head]]":
    """Return the heads of every session that the workspace ledger knows, as far as it can be read."""
    from deedbook.format.errors import DeedbookError
    from deedbook.format.heads import recorded

    heads: dict[str, list[Head]] = {}
    with suppress(DeedbookError):  # its own verification says what is wrong with it
        for head in recorded(source.state):
            heads.setdefault(head.session, []).append(head)
    return heads


def _session(source: "Workspace", identity: str, heads: "Sequence[Head]") -> Chosen:
    """Choose a session: what is lost of it, whether it never began, and else its file."""
    from deedbook.cli.ledgers import ledger_of
    from deedbook.format.errors import DeedbookError
    from deedbook.format.files import Folder
    from deedbook.format.heads import Gap, gaps, lost, unrecorded
    from deedbook.format.reader import is_empty, strays

    place = ledger_of(source, identity)
    files = [place] if place.exists() or place.is_symlink() else []
    try:
        missing = list(gaps(source.state, heads))
        with Folder.at(place.parent) as folder:
            if is_empty(folder) and (missing or not strays(folder)):
                return Chosen([], missing, [] if missing else [identity], source, identity)
        if files and not heads and (gap := unrecorded(source.state, identity)):
            return Chosen(files, [gap], (), source, identity)
        missing = missing if files or missing else [Gap(identity, "file", "a ledger beside what else is there", "none")]
    except (DeedbookError, OSError):  # the file's own verification says what is wrong with it
        missing = [] if files or not heads else [lost(heads)]
    return Chosen(files, missing, (), source, identity)
