"""What the workspace ledger and those of sessions say of tasks, held against each other: both have each step of them.

Each ledger is sound by itself, whoever wrote its last lines. So a step that stands in one of them alone, or otherwise,
was made up or taken away.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from deedbook.contract import Event
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.events import EXCISED_KEY, SESSION_ID
from deedbook.format.heads import Gap
from deedbook.format.reader import read
from deedbook.format.sealed import is_sealed

_STEPS: Final = frozenset({"task.created", "task.updated", "task.started", "task.decided", "task.deleted"})
"""What both have; the end of a run may be in one of them alone, where the other could not be written any more."""
_ENDED: Final = "task.ended"
_NONE: Final = "none"


_Gone: TypeAlias = tuple[str, str]
"""A type of events, and the digest of the task that they are of: empty where its making was taken out."""


class _Step(NamedTuple):
    """One step as a ledger has it: its type, and the digests of what it says, by member; what is sealed is left out."""

    type: str
    said: Mapping[str, str]


class _Session(NamedTuple):
    """The steps of a session by span; *whole*: it ended by itself, and nothing of it is still to come."""

    steps: Mapping[str, _Step]
    whole: bool


def disagreements(state: Path, sessions: Collection[str], *, every: bool = False) -> Iterator[Gap]:
    """Yield where the workspace ledger of a *state* folder and its *sessions* differ about tasks.

    *every* says that there are no other sessions. What cannot be read is passed over: its own verification says what is
    wrong with it.
    """
    seen = {name: found for name in sessions if (found := _session(state / "sessions" / name)) is not None}
    told, ended, gone = _told(state / "workspace")  # after the sessions: it is written first
    for name in sorted(told.keys() - {*sessions}) if every else ():
        if not SESSION_ID.fullmatch(name) or not (state / "sessions" / name).exists():
            yield Gap(name, "file", "a ledger, since the workspace ledger names it", _NONE)
    for name, session in seen.items():
        theirs = told.get(name, {})
        for span, step in session.steps.items():
            if span not in theirs and (lost := _lost(step, gone)):
                gone[lost] -= 1  # its payload was taken out there, and nobody can say which of the task's it was
            elif span in theirs or step.type != _ENDED or name in ended:
                yield from _compared(name, span, step, theirs.get(span, ()))
        for span in theirs.keys() - session.steps.keys() if session.whole else ():
            for each in theirs[span]:
                if each.type != _ENDED:
                    yield Gap(name, f"{each.type} {span}", "the same in the session's ledger", _NONE)


def _lost(step: _Step, gone: Counter[_Gone]) -> _Gone | None:
    """Return under what the workspace ledger may count a step of a session, if its payload was taken out there."""
    task = step.said.get("task")
    return next((each for each in gone if each[0] == step.type and gone[each] and task in (each[1], None)), None) or (
        (step.type, "") if gone[step.type, ""] else None
    )


def _compared(session: str, span: str, mine: _Step, theirs: Iterable[_Step]) -> Iterator[Gap]:
    """Yield how a step of a session differs from what the workspace ledger says of it, once."""
    found = list(theirs)
    if len(found) != 1:
        yield Gap(session, f"{mine.type} {span}", "once in the workspace ledger", f"{len(found)} times")
        return
    wrong = [name for name, digest in mine.said.items() if found[0].said.get(name, digest) != digest]
    if found[0].type != mine.type or wrong:
        what = f"other {', '.join(sorted(wrong))}" if wrong else found[0].type
        yield Gap(session, f"{mine.type} {span}", "the same in the workspace ledger", what)


def _session(place: Path) -> _Session | None:
    steps, whole = {}, False
    try:
        for event in read(place):
            if event.type in _STEPS or event.type == _ENDED:
                steps[event.span] = _step(event)
            elif event.type == "session.end":
                whole = event.payload.get("ok") is True
    except (DeedbookError, OSError):
        return None
    return _Session(steps, whole)


def _told(place: Path) -> tuple[dict[str, dict[str, list[_Step]]], set[str], Counter[_Gone]]:
    """Return the steps that the workspace ledger names, by the session and the span that it says they have.

    Beside it are the sessions whose end it has: whatever was written before that is on the disk; and how many steps of
    each type have no payload any more, by the task under whose making or run they stand.
    """
    gone: Counter[_Gone] = Counter()
    tasks: dict[str | None, str] = {}
    told: dict[str, dict[str, list[_Step]]] = {}
    ended: set[str] = set()
    with suppress(DeedbookError, OSError):
        for event in read(place):
            session, span = event.payload.get("session"), event.payload.get("span")
            if event.type in _STEPS | {_ENDED}:
                task = _step(event).said.get("task") or tasks.get(event.parent, "")
                tasks[event.span] = task
                gone[event.type, task] += EXCISED_KEY in event.payload
            if event.type in _STEPS | {_ENDED} and isinstance(session, str) and isinstance(span, str):
                told.setdefault(session, {}).setdefault(span, []).append(_step(event))
            elif event.type == "ledger.session" and event.payload.get("state") == "ended":
                ended.add(str(event.payload.get("session_id")))
    return told, ended, gone


def _step(event: Event) -> _Step:
    shown = {} if EXCISED_KEY in event.payload else event.payload
    said = {name: value for name, value in shown.items() if not _has_sealed(value)}
    return _Step(event.type, {name: canonical.digest(canonical.encode([value])) for name, value in said.items()})


def _has_sealed(value: Any) -> bool:
    """Say whether anything in *value* is sealed: two ledgers seal the same in two ways."""
    if isinstance(value, dict):
        return is_sealed(value) or any(map(_has_sealed, value.values()))
    return isinstance(value, list) and any(map(_has_sealed, value))
