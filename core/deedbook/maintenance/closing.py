"""Ending sessions from outside: one that a person names, or all whose processes died."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from deedbook.format.canonical import encode
from deedbook.format.errors import DeedbookError, DomainError, LedgerError, fault
from deedbook.format.events import SESSION_ID, Entry, label
from deedbook.format.files import Folder
from deedbook.format.heads import Head, recorded
from deedbook.format.reader import Listed, has_begun, listed, read, sessions
from deedbook.format.sealed import Sealer
from deedbook.ledger.journal import Torn
from deedbook.ledger.ledger import LOCK_SECONDS, Ledger, WorkspaceLedger
from deedbook.ledger.liveness import removing, sweep
from deedbook.ledger.processes import Process, Told, survey
from deedbook.ledger.recovery import close_interrupted, discard, refuse_cut

from . import imports
from .finishing import finish_all


@attrs.frozen
class Recovered:
    """What a recovery did.

    *closed*: the sessions it ended, each with how many calls became unknown; *removed*: those that never began and are
    gone; *refused*: those it left as they are, each with why; *died*: processes that were found dead, which no recovery
    had found before.
    """

    closed: Mapping[str, int] = attrs.field(factory=dict)
    removed: Sequence["Removed"] = ()
    refused: Mapping[str, DomainError] = attrs.field(factory=dict)
    died: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Whether there was anything to find."""
        return bool(self.closed or self.removed or self.refused or self.died)

    def as_json(self) -> dict[str, Any]:
        """Return it as ``system.boot`` records it."""
        return {
            "closed": [{"session_id": name, "unknown": unknown} for name, unknown in self.closed.items()],
            "removed": [each.id for each in self.removed],
            "refused": [
                {"session_id": name, "code": why.code, "reason": why.message} for name, why in self.refused.items()
            ],
            "died": list(self.died),
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people, one line for each process and session."""
        for name in self.died:
            yield f"process {name} died"
        for name, unknown in self.closed.items():
            yield f"session {name} is closed; {told(unknown)}"
        yield from map(str, self.removed)
        for name, why in self.refused.items():
            yield f"session {name} is left as it is: {why}"


@attrs.frozen
class Removed:
    """A session that never began and whose folder is gone; *torn* is what its first write left, which is kept."""

    id: str
    torn: Torn | None = None

    def __str__(self) -> str:
        if self.torn is None:
            return f"session {self.id} never began; its folder is removed"
        left = f"{self.torn.bytes} bytes of its first event are kept in workspace/{self.torn.kept}"
        return f"session {self.id} never began; {left}, and its folder is removed"


Keep: TypeAlias = Callable[[str, bytes], Torn]
"""Keeps what the first write of a session left, and records that."""


def told(unknown: int) -> str:
    """Return how many open calls became unknown, in words."""
    if not unknown:
        return "no call was open"
    return f"{unknown} open {'call is' if unknown == 1 else 'calls are'} unknown"


def close(state: Folder, identity: str, sealer: Sealer, heads: Sequence[Head] | None = None) -> tuple[int, Ledger]:
    """End the session *identity* whose process died; return how many calls are unknown, and its ledger, closed.

    Its new head is the caller's to record. *heads* are those that are recorded, where they are known. Raises
    `LedgerError`: ``LEDGER_LOCKED``, ``SESSION_ENDED``, ``SESSION_NOT_FOUND``, ``LEDGER_UNSOUND``.
    """
    folder = folder_of(state, identity)
    refuse_cut(Path(state.path), identity, heads)
    ledger = Ledger.reopen(folder, sealer=sealer)
    try:
        return close_interrupted(ledger, read(Path(state.path, "sessions", identity))), ledger
    finally:
        ledger.close()


def set_torn_aside(
    state: Folder, identity: str, sealer: Sealer, heads: Sequence[Head] | None = None
) -> tuple[int, Ledger] | None:
    """Set aside what follows the last line of a session that has ended; return how many bytes, and its ledger, closed.

    ``None`` if it has no end, or nothing follows. Its new head is the caller's to record. Raises as `close` does.
    """
    found = listed(state, identity) if SESSION_ID.fullmatch(identity) else Listed(identity, "empty")
    if found.state != "ended" or not found.torn:
        return None
    refuse_cut(Path(state.path), identity, heads)
    ledger = Ledger.reopen(folder_of(state, identity), sealer=sealer)
    ledger.close()
    return found.torn, ledger


def remove(
    state: Folder,
    identity: str,
    keep: Keep,
    heads: Sequence[Head] | None = None,
    seconds: float = LOCK_SECONDS,
) -> "Removed | None":
    """Remove the folder of a session that never began; ``None`` if it has begun, and then nothing is changed.

    What its first write left is given to *keep* (`WorkspaceLedger.keep`). The lock is waited for for *seconds*;
    meanwhile no session begins. Raises `LedgerError`: ``LEDGER_LOCKED`` while somebody begins it, ``LEDGER_UNSOUND`` if
    events of it are recorded or more is in the folder, ``SESSION_NOT_FOUND``.
    """
    kept: list[Torn] = []
    with folder_of(state, identity) as folder:
        if has_begun(folder):
            return None
        refuse_cut(Path(state.path), identity, heads)
        with removing(state):
            if has_begun(folder):
                return None
            discard(folder, lambda torn: kept.append(keep(identity, torn)), seconds)
    return Removed(identity, kept[0] if kept else None)


def write_head(ledger: WorkspaceLedger, session: str, events: int, head: str, state: str) -> None:
    """Record in the workspace's *ledger* how many events a session has and the hash of its last; raises `LedgerError`.

    So a session cannot vanish unseen, nor its end.
    """
    payload = {"session_id": session, "events": events, "head": head, "state": state}
    entry = Entry(label("ledger.session", "runtime", None), ledger.span(), ledger.root, encode(payload))
    ledger.append([entry], durable=True)


def recover(state: Folder, ledger: WorkspaceLedger, sealer: Sealer) -> Recovered:
    """End every session of a *state* folder that nobody writes and that has no end, and record its head in *ledger*.

    A session whose lock is held is passed over, and so is one that somebody else ends at the same time. One that is
    damaged, or lacks lines that were recorded of it, is left as it is. May be killed at any moment and begun again.
    """
    before, listed = survey(state), {each.id: each for each in sessions(state)}
    heads = _heads(Path(state.path))  # after the listing: a dead session gets no more
    run = _Recovery(state, ledger, sealer, heads)
    for each in listed.values():
        run.end(each)
    for told_ in before.sessions.values():
        run.mend(told_, listed.get(told_.id), before.processes.get(told_.process))
    sweep(state)
    finish_all(state)
    imports.settle(state)
    known = {name for process in before.processes.values() for name in process.recovered.get("died", ())}
    died = [each.id for each in before.processes.values() if each.state == "died" and each.id not in known]
    return Recovered(run.closed, run.removed, run.refused, died)


@attrs.frozen
class _Recovery:
    """One recovery under way: what is recorded of each session, and what became of those that were found."""

    state: Folder
    ledger: WorkspaceLedger
    sealer: Sealer
    heads: Mapping[str, Sequence[Head]]
    closed: dict[str, int] = attrs.field(factory=dict)
    removed: list[Removed] = attrs.field(factory=list)
    refused: dict[str, DomainError] = attrs.field(factory=dict)

    def end(self, found: Listed) -> None:
        """End or remove a session that nobody writes."""
        heads = self.heads.get(found.id, ())
        try:
            if _is_unbegun(found):
                if removed := remove(self.state, found.id, self.ledger.keep, heads, 0.0):
                    self.removed.append(removed)
            elif found.state in ("interrupted", "damaged"):
                self.closed[found.id], closed = close(self.state, found.id, self.sealer, heads)
                write_head(self.ledger, closed.session_id, closed.size, closed.head, "interrupted")
            elif found.state == "ended" and found.torn:
                self._set_aside(found, heads)
        except DeedbookError as problem:
            if not self._is_elsewhere(found, problem.error):
                self.refused[found.id] = problem.error

    def _set_aside(self, found: Listed, heads: Sequence[Head]) -> None:
        if mended := set_torn_aside(self.state, found.id, self.sealer, heads):
            _, ledger = mended
            write_head(self.ledger, found.id, ledger.size, ledger.head, "ended")

    def mend(self, told: Told, found: Listed | None, process: Process | None) -> None:
        """Record the head of a session that ended and whose process died before it told, and report a lost one."""
        if told.state != "open":
            return
        if found is None and not self.state.exists(f"sessions/{told.id}"):
            why = f"its file is gone, and the workspace ledger recorded {told.events} events of it"
            self.refused[told.id] = fault("LEDGER_UNSOUND", why, place=f"{self.state.path}/sessions/{told.id}")
        elif found and found.state == "ended" and process and process.state == "died":
            write_head(self.ledger, found.id, found.events, found.head, "ended")

    def _is_elsewhere(self, found: Listed, problem: DomainError) -> bool:
        """Say whether somebody else has the session by now, or was quicker to end it or to remove it."""
        if problem.code in ("LEDGER_LOCKED", "SESSION_ENDED"):
            return True
        try:
            with folder_of(self.state, found.id) as folder:
                return _is_unbegun(found) and has_begun(folder)
        except LedgerError:
            return True


def _is_unbegun(found: Listed) -> bool:
    """Say whether a session that nobody writes has no event; one that is damaged may have any."""
    return not found.events and found.state in ("empty", "interrupted")


def _heads(place: Path) -> dict[str, list[Head]]:
    heads: dict[str, list[Head]] = {}
    for head in recorded(place):
        heads.setdefault(head.session, []).append(head)
    return heads


def folder_of(state: Folder, session: str) -> Folder:
    """Return the folder of a session; raises `LedgerError` (``SESSION_NOT_FOUND``)."""
    if SESSION_ID.fullmatch(session):
        with suppress(FileNotFoundError):
            return state.sub(f"sessions/{session}")
    raise LedgerError(fault("SESSION_NOT_FOUND", f"there is no session {session!r}"))
