"""Covering every session of a workspace by a checkpoint, also those of other processes, open or dead."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.files import Folder
from deedbook.format.leaves import Leaf
from deedbook.format.reader import SessionSummary, list_sessions

from .trees import Track
from .writer import MOST, Made, Why, Writer


@attrs.frozen
class Covered:
    """What was covered: the checkpoints that were *made*, and the sessions that were *left out*, each with why."""

    made: Sequence[Made]
    left_out: Mapping[str, DomainError]


def cover(state: Folder, writer: Writer, why: Why, names: Collection[str] | None = None) -> Covered:
    """Write checkpoints with a leaf of every session of *state* that grew since its last (or of *names* alone).

    The log of *writer* is a whole one. A session that is not what its last leaf says is left out and told. Raises
    `LedgerError`, `SignatureError`.
    """
    left_out: dict[str, DomainError] = {}
    found = {each.id: each for each in list_sessions(state)}
    wanted = found if names is None else {name: found[name] for name in names if name in found}
    if names is None:
        left_out |= {name: _gone(state, name) for name in _lost(writer, found)}
    tracks = list(_grown(state, writer, wanted, left_out))
    parts = [tracks[start : start + MOST] for start in range(0, len(tracks), MOST)] or [[]]
    return Covered([writer.write(why, part) for part in parts], left_out)


def _grown(
    state: Folder, writer: Writer, wanted: Mapping[str, SessionSummary], left_out: dict[str, DomainError]
) -> Iterator[Track]:
    """Yield every session that has more lines than its last leaf, read and synced."""
    for name, listed in wanted.items():
        try:
            track = _track(state, listed, writer.log.leaves.get(name))
            if track:
                track.advance(state)
                yield track
        except (DeedbookError, OSError) as problem:
            left_out[name] = problem.error if isinstance(problem, DeedbookError) else fault("FAILED", str(problem))


def _track(state: Folder, listed: SessionSummary, leaf: Leaf | None) -> Track | None:
    """Return the session to be read on, ``None`` where its last leaf says all; refuse one that is not what it says."""
    if leaf and (listed.events, listed.head) == (leaf.size, leaf.head):
        return None
    if leaf:
        return Track.after(state, listed.id, leaf.tree, leaf.head)
    if listed.state == "damaged":
        why = "it cannot be read, so that no checkpoint covers it; verify it"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=f"{state.path}/sessions/{listed.id}"))
    return Track(listed.id) if listed.events else None


def _lost(writer: Writer, found: Mapping[str, SessionSummary]) -> Iterator[str]:
    own = writer.log.ledger.session_id
    return (name for name in writer.log.leaves if name not in found and name != own)


def _gone(state: Folder, name: str) -> DomainError:
    place = f"{state.path}/sessions/{name}"
    return fault("LEDGER_UNSOUND", "a checkpoint covers it, and its file is gone", place=place)
