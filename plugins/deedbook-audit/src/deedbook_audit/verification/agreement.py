"""Compares the steps of tasks in the workspace ledger with those in sessions: both ledgers record each step.

Each ledger is sound by itself. So a step that only one of them has, or that differs, was forged or removed.
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
"""The types that both ledgers have; the end of a run may be in one of them alone if the other could not be written."""
_END: Final = "task.ended"
_NONE: Final = "none"


_ExcisedStep: TypeAlias = tuple[str, str]
"""A type of events, and the digest of its task; empty if the task's creation was excised."""


class _Step(NamedTuple):
    """One step in a ledger: its type, and the digests of its members; sealed members are left out."""

    type: str
    digests: Mapping[str, str]


class _Session(NamedTuple):
    """The steps of a session by span; *is_complete*: the session ended normally, and has no steps to come."""

    steps: Mapping[str, _Step]
    is_complete: bool


def compare_tasks(state: Path, sessions: Collection[str], *, every: bool = False) -> Iterator[Gap]:
    """Yield the differences between the workspace ledger of a *state* folder and its *sessions* about tasks.

    *every*: there are no other sessions. An unreadable ledger is skipped: its own verification reports it.
    """
    seen = {name: found for name in sessions if (found := _read_session(state / "sessions" / name)) is not None}
    recorded, ended, excised = _read_workspace(
        state / "workspace"
    )  # after the sessions: the workspace ledger is written before them
    for name in sorted(recorded.keys() - {*sessions}) if every else ():
        if not SESSION_ID.fullmatch(name) or not (state / "sessions" / name).exists():
            yield Gap(name, "file", "a ledger, since the workspace ledger names it", _NONE)
    for name, session in seen.items():
        theirs = recorded.get(name, {})
        for span, step in session.steps.items():
            if span not in theirs and (lost := _find_excised(step, excised)):
                excised[lost] -= (
                    1  # excised in the workspace ledger, where it cannot be told from the task's other steps
                )
            elif span in theirs or step.type != _END or name in ended:
                yield from _compare_step(name, span, step, theirs.get(span, ()))
        for span in theirs.keys() - session.steps.keys() if session.is_complete else ():
            for each in theirs[span]:
                if each.type != _END:
                    yield Gap(name, f"{each.type} {span}", "the same in the session's ledger", _NONE)


def _find_excised(step: _Step, excised: Counter[_ExcisedStep]) -> _ExcisedStep | None:
    """Return the key under which the workspace ledger may count an excised step of a session."""
    task = step.digests.get("task")
    return next(
        (each for each in excised if each[0] == step.type and excised[each] and task in (each[1], None)), None
    ) or ((step.type, "") if excised[step.type, ""] else None)


def _compare_step(session: str, span: str, mine: _Step, theirs: Iterable[_Step]) -> Iterator[Gap]:
    """Yield the differences between a step of a session and the workspace ledger, once."""
    found = list(theirs)
    if len(found) != 1:
        yield Gap(session, f"{mine.type} {span}", "once in the workspace ledger", f"{len(found)} times")
        return
    wrong = [name for name, digest in mine.digests.items() if found[0].digests.get(name, digest) != digest]
    if found[0].type != mine.type or wrong:
        what = f"other {', '.join(sorted(wrong))}" if wrong else found[0].type
        yield Gap(session, f"{mine.type} {span}", "the same in the workspace ledger", what)


def _read_session(place: Path) -> _Session | None:
    steps, whole = {}, False
    try:
        for event in read(place):
            if event.type in _STEPS or event.type == _END:
                steps[event.span] = _build_step(event)
            elif event.type == "session.end":
                whole = event.payload.get("ok") is True
    except (DeedbookError, OSError):
        return None
    return _Session(steps, whole)


def _read_workspace(place: Path) -> tuple[dict[str, dict[str, list[_Step]]], set[str], Counter[_ExcisedStep]]:
    """Return the steps in the workspace ledger, by the session and the span that they name.

    Also the sessions whose end it records, since everything before an end is on disk; and the number of excised steps
    of each type, by the task that they belong to.
    """
    excised: Counter[_ExcisedStep] = Counter()
    tasks: dict[str | None, str] = {}
    recorded: dict[str, dict[str, list[_Step]]] = {}
    ended: set[str] = set()
    with suppress(DeedbookError, OSError):
        for event in read(place):
            session, span = event.payload.get("session"), event.payload.get("span")
            if event.type in _STEPS | {_END}:
                task = _build_step(event).digests.get("task") or tasks.get(event.parent, "")
                tasks[event.span] = task
                excised[event.type, task] += EXCISED_KEY in event.payload
            if event.type in _STEPS | {_END} and isinstance(session, str) and isinstance(span, str):
                recorded.setdefault(session, {}).setdefault(span, []).append(_build_step(event))
            elif event.type == "ledger.session" and event.payload.get("state") == "ended":
                ended.add(str(event.payload.get("session_id")))
    return recorded, ended, excised


def _build_step(event: Event) -> _Step:
    shown = {} if EXCISED_KEY in event.payload else event.payload
    members = {name: value for name, value in shown.items() if not _has_sealed(value)}
    return _Step(event.type, {name: canonical.digest(canonical.encode([value])) for name, value in members.items()})


def _has_sealed(value: Any) -> bool:
    """Return whether *value* holds a sealed value: two ledgers seal the same value differently."""
    if isinstance(value, dict):
        return is_sealed(value) or any(map(_has_sealed, value.values()))
    return isinstance(value, list) and any(map(_has_sealed, value))
