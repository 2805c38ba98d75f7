"""End a session whose process died: calls without an outcome become unknown and are not retried."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.context import LIVE, ContextFold
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import AFTER_END, Entry, label, split_line
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.folds import NAMED_BY, fold
from deedbook.format.heads import Head, find_gaps, list_heads
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import SEALED, find_strays, has_events, read

from .chain import place_of, translate_errors
from .journal import acquire
from .ledger import LOCK_SECONDS, Ledger

REASON = "interrupted: the process died before the session ended"
UNKNOWN = b'"outcome":"unknown"'
HANDED_OVER = "SESSION_HANDED_OVER"
"""The code of the ``session.suspended`` with which a session leaves its state folder."""
GIVEN_UP = "given up: the run is not resumed"
PARKED = "NEEDS_HUMAN: the process died while a person was to decide; `deedbook approvals list` says what waits"


def close_interrupted(
    ledger: Ledger, events: Iterable[Event], withdrawn: Sequence[Event] = (), *, given_up: bool = False
) -> int:
    """Close what *events*, all of a reopened *ledger*, leave open, and end it; return the number of calls.

    *withdrawn* are the requests for approval that end with their runs. *given_up*: a run could be resumed, and is
    halted.
    """
    past = list(events)
    entries = _outcomes(ledger, past)
    lost = len(entries)
    reason, end = _reason(past, withdrawn, given_up=given_up)
    entries += [_entry(ledger, f"context.{end}", run, {"reason": reason}) for run in _open_contexts(ledger, past, end)]
    for asked in withdrawn:
        payload = {"approval": asked.payload["approval"], "reason": reason}
        entries.append(_entry(ledger, "approval.withdrawn", asked.span, payload, asked.principal, "runtime"))
    entries.append(_entry(ledger, "session.end", ledger.root, {"ok": False, "reason": reason}))
    ledger.append(entries, durable=True)
    return lost


def _reason(events: Sequence[Event], withdrawn: Sequence[Event], *, given_up: bool) -> tuple[str, str]:
    """Return why the session ends, and the event that its contexts end with."""
    if given_up:
        return GIVEN_UP, "halted"
    ended = {asked.span for asked in withdrawn}
    return (PARKED, "needs_human") if _awaits_person(events, ended) else (REASON, "halted")


def _open_contexts(ledger: Ledger, events: Sequence[Event], end: str) -> list[str]:
    """Return the runs whose contexts are to be ended, inner ones first."""
    left = {event.span for event in intents_without_outcome(events)}
    contexts = fold(ContextFold(), events).values()
    waits = [each for each in contexts if each.state == "NEEDS_HUMAN" and each.run in left and end == "halted"]
    return [each.run or ledger.root for each in contexts if each.state in LIVE or each in waits][::-1]


def _awaits_person(events: Iterable[Event], withdrawn: Collection[str]) -> bool:
    """Return whether a person's decision was pending when the process died, and still is."""
    waiting: set[str] = set()
    for event in events:
        if event.type == "approval.requested" and event.span not in withdrawn:
            waiting.add(event.span)
        elif event.type.startswith("approval.") and event.parent in waiting:
            waiting.discard(event.parent)
    return bool(waiting)


def refuse_cut(state: Path, identity: str, heads: Sequence[Head] | None = None) -> None:
    """Raise `LedgerError` (``LEDGER_UNSOUND``) if a session's file lacks what the workspace ledger recorded of it.

    Ending such a session would make the cut look like its end. *heads* are the recorded ones, if they are known.
    """
    known = [head for head in list_heads(state) if head.session == identity] if heads is None else heads
    for gap in find_gaps(state, known):
        why = (
            f"it is not what the workspace ledger recorded: {gap.check}: expected {gap.expected}, found {gap.found}. "
            "Nothing was written. Restore the whole file from a copy, or leave it as it is; `deedbook verify` reports "
            "all differences"
        )
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=str(state / "sessions" / identity / LEDGER_FILE)))


def refuse_copy(state: Path, identity: str) -> None:
    """Raise `LedgerError` (``SESSION_COPIED``) for the folder of a session that was copied to this place.

    Its lines name another session than the folder does, or the workspace ledger here has no record of the session,
    which it has before the session acts. A damaged first line is left to `Ledger.reopen`.
    """
    place = state / "sessions" / identity / LEDGER_FILE
    with suppress(FileNotFoundError), Folder.at(place.parent) as folder, folder.open(place.name) as file:
        first = file.readline()
        own = split_line(first, place=str(place)).session_id if first.endswith(b"\n") else identity
        if own != identity:
            why = f"the folder of session {identity} is a copy: it holds the ledger of session {own}"
            todo = f"resume that one where it began (deedbook resume {own}), and remove the copy"
        elif not any(head.session == identity for head in list_heads(state)):
            why = f"session {identity} began in another state folder: the workspace ledger here has no record of it"
            todo = (
                "resume it where it began; to go on here, hand it over there with deedbook context save "
                f"{identity} FILE --hand-over, and run here: deedbook context load FILE"
            )
        else:
            return
        raise LedgerError(fault("SESSION_COPIED", f"{why}; {todo}", place=str(place)))


def find_handover(events: Sequence[Event]) -> Event | None:
    """Return the event that handed the session of *events* over; ``None`` if more than amendments happened since."""
    last = next((event for event in reversed(events) if not event.type.startswith(AFTER_END)), None)
    handed_over = last is not None and last.type == "session.suspended" and last.payload.get("code") == HANDED_OVER
    return last if handed_over else None


def refuse_handed_over(state: Path, identity: str, events: Sequence[Event]) -> None:
    """Raise `LedgerError` (``SESSION_HANDED_OVER``) for a session that goes on elsewhere.

    It goes on in the state folder whose workspace ledger says that it was received after that (``ledger.received``).
    """
    last = find_handover(events)
    if last is not None and not _is_received(state, identity, last.seq):
        why = (
            f"session {identity} was handed over (event {last.seq}), and goes on where its bundle is loaded. To go on "
            "here, load that bundle here, and nowhere else: deedbook context load BUNDLE"
        )
        raise LedgerError(fault(HANDED_OVER, why, place=str(state / "sessions" / identity / LEDGER_FILE)))


def _is_received(state: Path, identity: str, seq: int) -> bool:
    with suppress(FileNotFoundError), Folder.at(state / "workspace") as folder:
        for event in read(folder):
            if event.type == "ledger.received" and event.payload["session_id"] == identity:
                events = event.payload["events"]
                if isinstance(events, int) and events > seq:
                    return True
    return False


def discard(folder: Folder, keep: Callable[[bytes], None], seconds: float = LOCK_SECONDS) -> None:
    """Remove the *folder* of a session that never began: its ledger has no whole line, and nothing else is beside it.

    *keep* receives the bytes of an incomplete first line before. Sealed values are also removed: the event that names
    them was never written. *seconds* is how long to wait for the lock. Raises `LedgerError`: ``LEDGER_LOCKED`` while
    another process begins it, ``LEDGER_UNSOUND`` if there is more in the folder.
    """
    place = place_of(folder)
    with translate_errors(place):
        fd = None
        with suppress(FileNotFoundError):
            fd = folder.append(LEDGER_FILE, create=False)
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


def _refuse_more(folder: Folder, place: str) -> None:
    more = find_strays(folder)
    if more or has_events(folder):
        what = f"its folder holds {', '.join(map(ascii, more[:5]))}" if more else "events are recorded by now"
        why = f"no event was recorded when it was checked, but {what}; nothing was removed. Inspect it by hand"
        raise LedgerError(fault("LEDGER_UNSOUND", why, place=place))


def close_lost(ledger: Ledger, events: Iterable[Event]) -> None:
    """Append an unknown outcome for each intent among *events* that has none; the session continues."""
    entries = _outcomes(ledger, events)
    if entries:
        ledger.append(entries)


def _outcomes(ledger: Ledger, events: Iterable[Event]) -> list[Entry]:
    """Return the missing outcomes: a nested call's before that of its caller."""
    return [unknown_outcome(ledger, event) for event in reversed(intents_without_outcome(events))]


def intents_without_outcome(events: Iterable[Event]) -> list[Event]:
    """Return the intents among *events* that have no outcome, in order."""
    begun: dict[str, Event] = {}
    for event in events:
        if event.type in OUTCOMES:
            begun[event.span] = event
        elif event.parent in begun and event.type in OUTCOMES[begun[event.parent].type]:
            del begun[event.parent]
    return list(begun.values())


def unknown_outcome(ledger: Ledger, intent: Event) -> Entry:
    """Return the outcome ``unknown`` of a call that was lost with its process."""
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


def _entry(
    ledger: Ledger, event_type: str, cause: str, payload: object, principal: str | None = None, actor: str = "system"
) -> Entry:
    return Entry(label(event_type, actor, principal), ledger.span(), cause, canonical.encode(payload))
