"""Ending a session whose process died: what was begun and has no outcome becomes unknown, and nothing retries it."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.context import LIVE, ContextFold
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import Entry, label
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.folds import NAMED_BY, fold
from deedbook.format.heads import Head, gaps, recorded
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import SEALED, has_begun, strays

from .chain import explained, place_of
from .journal import acquire
from .ledger import LOCK_SECONDS, Ledger

REASON = "interrupted: the process died before the session ended"
PARKED = "NEEDS_HUMAN: the process died while a person was to decide; `deedbook approvals list` says what waits"


def close_interrupted(ledger: Ledger, events: Iterable[Event]) -> int:
    """Append what *events*, all of a reopened *ledger*, leave open, then ``session.end``; return how many calls."""
    told = list(events)
    entries = _outcomes(ledger, told)
    lost = len(entries)
    context = fold(ContextFold(), told)
    asked = _asked(told)
    reason, end = (PARKED, "needs_human") if asked else (REASON, "halted")
    if context is not None and context.state in LIVE:
        cause = next((event.span for event in reversed(told) if event.type == "flow.call"), ledger.root)
        entries.append(_entry(ledger, f"context.{end}", cause, {"reason": reason}))
    entries.append(_entry(ledger, "session.end", ledger.root, {"ok": False, "reason": reason}))
    ledger.append(entries, durable=True)
    return lost


def _asked(events: Iterable[Event]) -> bool:
    """Say whether a person was to decide something when the process died, and had not."""
    waiting: set[str] = set()
    for event in events:
        if event.type == "approval.requested":
            waiting.add(event.span)
        elif event.type.startswith("approval.") and event.parent in waiting:
            waiting.discard(event.parent)
    return bool(waiting)


def refuse_cut(state: Path, identity: str, heads: Sequence[Head] | None = None) -> None:
    """Raise `LedgerError` (``LEDGER_UNSOUND``) if a session's file lacks what the workspace ledger recorded of it.

    To end such a session would make the cut look like its end. *heads* are the recorded ones, where they are known.
    """
    known = [head for head in recorded(state) if head.session == identity] if heads is None else heads
    for gap in gaps(state, known):
        why = (
            f"it is not what the workspace ledger recorded: {gap.check}: expected {gap.expected}, found {gap.found}. "
            "Nothing was written. Put the whole file back from a copy, or leave it as it is; `deedbook verify` says all"
        )
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=str(state / "sessions" / identity / LEDGER_FILE)))


def discard(folder: Folder, keep: Callable[[bytes], None], seconds: float = LOCK_SECONDS) -> None:
    """Remove the *folder* of a session that never began: no whole line is in its ledger, and nothing else beside it.

    The bytes of a first line that was not written whole are given to *keep* before. Sealed values are removed, too:
    the event that names them was never written. The lock is waited for for *seconds*. Raises `LedgerError`:
    ``LEDGER_LOCKED`` while somebody begins it, ``LEDGER_UNSOUND`` if there is more in the folder.
    """
    place = place_of(folder)
    with explained(place):
        fd = _ledger_file(folder)
        try:
            if fd is not None:
                acquire(fd, place=place, seconds=seconds)
            _refuse_more(folder, place)
            if fd is not None and (size := os.fstat(fd).st_size):
                keep(os.pread(fd, size, 0))
            with suppress(FileNotFoundError):
                for name, _ in folder.kinds(SEALED):
                    folder.remove(f"{SEALED}/{name}")
                Path(folder.path, SEALED).rmdir()
            if fd is not None:
                folder.remove(LEDGER_FILE)
            Path(folder.path).rmdir()
        finally:
            if fd is not None:
                os.close(fd)


def _ledger_file(folder: Folder) -> int | None:
    with suppress(FileNotFoundError):
        return folder.append(LEDGER_FILE, create=False)
    return None


def _refuse_more(folder: Folder, place: str) -> None:
    more = strays(folder)
    if more or has_begun(folder):
        what = f"its folder holds {', '.join(map(ascii, more[:5]))}" if more else "events are recorded by now"
        why = f"no event was recorded when it was looked at, but {what}; nothing was removed. Look at it by hand"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))


def close_lost(ledger: Ledger, events: Iterable[Event]) -> None:
    """Append an unknown outcome for each intent among *events* that has none; the session goes on."""
    entries = _outcomes(ledger, events)
    if entries:
        ledger.append(entries)


def _outcomes(ledger: Ledger, events: Iterable[Event]) -> list[Entry]:
    """Return the outcomes that are missing: a nested call's before that of the call it serves."""
    return [_unknown(ledger, event) for event in reversed(_without_outcome(events))]


def _without_outcome(events: Iterable[Event]) -> list[Event]:
    """Return the intents that nothing closed, in order."""
    begun: dict[str, Event] = {}
    for event in events:
        if event.type in OUTCOMES:
            begun[event.span] = event
        elif event.parent in begun and event.type in OUTCOMES[begun[event.parent].type]:
            del begun[event.parent]
    return list(begun.values())


def _unknown(ledger: Ledger, intent: Event) -> Entry:
    family = intent.type.partition(".")[0]
    name = NAMED_BY[family]
    payload = {
        name: intent.payload.get(name),
        "code": "OUTCOME_UNKNOWN",
        "message": "it was interrupted while this call ran; whether it had its effect is not known",
        "outcome": "unknown",
        "retryable": False,
    }
    return _entry(ledger, f"{family}.error", intent.span, payload, intent.principal)


def _entry(ledger: Ledger, event_type: str, cause: str, payload: object, principal: str | None = None) -> Entry:
    return Entry(label(event_type, "system", principal), ledger.span(), cause, canonical.encode(payload))
