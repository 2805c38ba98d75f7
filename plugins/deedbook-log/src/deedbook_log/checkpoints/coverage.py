"""Covers every session of a workspace with a checkpoint, also sessions of other processes, open or dead."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.files import Folder
from deedbook.format.reader import SessionSummary, list_sessions

from .leaves import Leaf
from .trees import SessionTree
from .writer import MAX_SESSIONS, CheckpointWriter, NewCheckpoint, Why


@attrs.frozen
class CoverageResult:
    """The written *checkpoints*, and the sessions that were *left_out*, each with the reason."""

    checkpoints: Sequence[NewCheckpoint]
    left_out: Mapping[str, DomainError]


def cover_sessions(
    state: Folder, writer: CheckpointWriter, why: Why, names: Collection[str] | None = None
) -> CoverageResult:
    """Write checkpoints with a leaf of every session of *state* that grew since its last leaf (or of *names* alone).

    The log of *writer* has to be a whole one. A session that differs from its last leaf is left out and reported.
    Raises `LedgerError`, `SignatureError`.
    """
    left_out: dict[str, DomainError] = {}
    found = {each.id: each for each in list_sessions(state)}
    wanted = found if names is None else {name: found[name] for name in names if name in found}
    if names is None:
        left_out |= {name: _missing_error(state, name) for name in _find_missing(writer, found)}
    tracks = list(_advance_tracks(state, writer, wanted, left_out))
    parts = [tracks[start : start + MAX_SESSIONS] for start in range(0, len(tracks), MAX_SESSIONS)] or [[]]
    return CoverageResult([writer.write(why, part) for part in parts], left_out)


def _advance_tracks(
    state: Folder, writer: CheckpointWriter, wanted: Mapping[str, SessionSummary], left_out: dict[str, DomainError]
) -> Iterator[SessionTree]:
    """Yield every session that has more lines than its last leaf, read and synced."""
    for name, listed in wanted.items():
        try:
            track = _build_track(state, listed, writer.log.leaves.get(name))
            if track:
                track.advance(state)
                yield track
        except (DeedbookError, OSError) as problem:
            left_out[name] = problem.error if isinstance(problem, DeedbookError) else fault("FAILED", str(problem))


def _build_track(state: Folder, listed: SessionSummary, leaf: Leaf | None) -> SessionTree | None:
    """Return the tree of a session to read on, ``None`` if it has not grown.

    Raises `LedgerError` if the session differs from its last leaf.
    """
    if leaf and (listed.events, listed.head) == (leaf.size, leaf.head):
        return None
    if leaf:
        return SessionTree.resume(state, listed.id, leaf.tree, leaf.head)
    if listed.state == "damaged":
        why = "it cannot be read, so that no checkpoint covers it; verify it"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/sessions/{listed.id}"))
    return SessionTree(listed.id) if listed.events else None


def _find_missing(writer: CheckpointWriter, found: Mapping[str, SessionSummary]) -> Iterator[str]:
    own = writer.log.ledger.session_id
    return (name for name in writer.log.leaves if name not in found and name != own)


def _missing_error(state: Folder, name: str) -> DomainError:
    place = f"{state.path}/sessions/{name}"
    return fault("LEDGER_UNSOUND", "a checkpoint covers it, and its file is gone", place=place)
