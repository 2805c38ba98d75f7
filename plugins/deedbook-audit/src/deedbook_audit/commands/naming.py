"""From names on the command line to a selection: ledgers and sessions of the workspace, and the reader's own keys."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deedbook.format.notes import VerifierKey
    from deedbook.workspace.declarations import Workspace
    from deedbook_audit.selection import Selection
    from deedbook_audit.verification.log import Log


def select_workspace(workspace: str) -> "Selection":
    """Select every ledger of the workspace, and every session that its ledger names."""
    from deedbook.cli.ledgers import read_leniently
    from deedbook_audit.selection import select_all

    return select_all(*read_leniently(workspace))


def select_folder(name: str) -> "Selection | None":
    """Select every ledger of the state folder *name*, with the workspace above it; ``None`` if it is none."""
    from pathlib import Path

    from deedbook.format.paths import is_state
    from deedbook_audit.selection import select_all

    from .ledgers import workspace_of_state

    place = Path(name).absolute()
    return select_all(*workspace_of_state(place, place.parent)) if is_state(place) else None


def select_one(workspace: str, name: str) -> "Selection":
    """Select one ledger; for a session of this workspace, with what the workspace ledger records of it."""
    from deedbook.cli.ledgers import own_ledger_path, read_leniently
    from deedbook.format.errors import DeedbookError
    from deedbook_audit.selection import Selection, read_heads, select_session
    from deedbook_audit.upcasting.naming import split_source

    from .ledgers import find_session, session_file

    source: Workspace | None = None
    notes: list[str] = []
    with suppress(DeedbookError):  # a file needs no workspace
        source, notes = read_leniently(workspace)
    heads = read_heads(source) if source else {}
    identity = find_session(source, name, heads) if source else None
    if source is not None and identity is not None:
        return select_session(source, identity, heads, notes)
    file, _ = split_source(session_file(workspace, name))  # an older form is verified whole
    inside = (
        source is not None and own_ledger_path(source).exists() and file.resolve() == own_ledger_path(source).resolve()
    )
    return Selection([file], source=source, inside=inside, notes=notes if inside else ())


def own_keys(log: "Log") -> "Iterator[VerifierKey]":
    """Yield the public halves of the log's keys that are in the reader's own key ring."""
    from deedbook.approvals.keys import KeyRing
    from deedbook.format.errors import DeedbookError

    ring = KeyRing.of(os.environ)
    for name in ring.names():
        if name.startswith(f"{log.identity}."):
            with suppress(DeedbookError):  # a key that is not stored safely does not count
                yield ring.load(name, log.origin).public
