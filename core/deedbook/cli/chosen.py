"""Which ledgers are to be verified, and what is missing of those that were recorded."""

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deedbook.verification.heads import Gap, Head
    from deedbook.workspaces.declarations import Workspace


@attrs.frozen
class Chosen:
    """What is to be checked: the *files*, what is *lost* of those that were recorded, sessions that never began.

    *source* is the workspace, if there is one; *inside*: they are its own. *session* is the one session that was named.
    *notes* are what a reader has to know of how they were chosen.
    """

    files: "Sequence[Path]"
    lost: "Sequence[Gap]" = ()
    empty: "Sequence[str]" = ()
    source: "Workspace | None" = None
    session: str | None = None
    inside: bool = True
    notes: "Sequence[str]" = ()


def every(workspace: str) -> Chosen:
    """Choose every ledger, and every session that the workspace ledger knows."""
    from .ledgers import standing

    return _every(*standing(workspace))


def folder(name: str) -> Chosen | None:
    """Choose every ledger of the state folder that *name* is, with its workspace if that is above it, or ``None``."""
    from pathlib import Path

    from .ledgers import is_state, known_by

    place = Path(name).absolute()
    return _every(*known_by(place, place.parent)) if is_state(place) else None


def _every(source: "Workspace", notes: "Sequence[str]") -> Chosen:
    from deedbook.errors import DeedbookError
    from deedbook.verification.agreement import disagreements
    from deedbook.verification.answers import misquoted
    from deedbook.verification.recollections import recollections
    from deedbook.verification.taken_in import changed
    from deedbook.verification.uses import misused

    from .ledgers import own, session_ids

    heads = _heads(source)  # before the files: they only grow
    names = sorted({*session_ids(source), *heads})
    each = [_session(source, name, heads.get(name, ())) for name in names]
    lost = [*(gap for one in each for gap in one.lost), *disagreements(source.state, names, every=True)]
    named = (recollections, misquoted, misused)
    lost += (gap for check in named for gap in check(source.state, names))
    with suppress(DeedbookError):  # its own verification says what is wrong with it
        lost += changed(source.state)
    files = [*_own(own(source), begun=bool(names)), *(file for one in each for file in one.files)]
    return Chosen(files, lost, [name for one in each for name in one.empty], source, notes=notes)


def _own(place: "Path", *, begun: bool) -> "list[Path]":
    """Return the workspace ledger, if there is any; one without a byte is none where no session has *begun*, either.

    A process that dies before it writes the first line leaves such a file, and no session begins before that line.
    """
    unwritten = not begun and place.is_file() and not place.is_symlink() and not place.stat().st_size
    return [place] if place.exists() and not unwritten else []


def one(workspace: str, name: str) -> Chosen:
    """Choose one ledger; if it is that of a session of this workspace, with what the workspace ledger knows of it."""
    from deedbook.errors import DeedbookError
    from deedbook.upcasting.naming import parted
    from deedbook.verification.agreement import disagreements
    from deedbook.verification.answers import misquoted
    from deedbook.verification.recollections import recollections
    from deedbook.verification.uses import misused

    from .ledgers import own, session_file, session_named, standing

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
    checks, named = (disagreements, recollections, misquoted, misused), [identity]
    told = (gap for check in checks for gap in check(source.state, named))
    return attrs.evolve(chosen, lost=[*chosen.lost, *told], notes=notes)


def _heads(source: "Workspace") -> "Mapping[str, list[Head]]":
    """Return the heads of every session that the workspace ledger knows, as far as it can be read."""
    from deedbook.errors import DeedbookError
    from deedbook.verification.heads import recorded

    heads: dict[str, list[Head]] = {}
    with suppress(DeedbookError):  # its own verification says what is wrong with it
        for head in recorded(source.state):
            heads.setdefault(head.session, []).append(head)
    return heads


def _session(source: "Workspace", identity: str, heads: "Sequence[Head]") -> Chosen:
    """Choose a session: what is lost of it, whether it never began, and else its file."""
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.reader import is_empty, strays
    from deedbook.verification.heads import Gap, gaps, lost, unrecorded

    from .ledgers import ledger_of

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
