"""The checks of ``deedbook doctor``: rewards and revisions of routing policies follow from what is recorded."""

from collections.abc import Callable, Iterator
from pathlib import Path

from deedbook.contract import Event
from deedbook.contract.features import Check, first_faults
from deedbook.format.errors import DeedbookError
from deedbook.format.paths import LEDGER_FILE
from deedbook.format.reader import read
from deedbook_flow_swe.events import REWARDED
from deedbook_flow_swe.task_record import TaskRecord

from .evidence import Mention
from .ledger_files import list_sessions, read_events, read_records
from .revision import check_revision
from .reward import compute_reward
from .workspace_events import MARK, ROUTING_REVISED

REVISIONS = "routing revisions"
REWARDS = "rewards of tasks"


def check_learning(state: Path) -> Iterator[Check]:
    """Yield the checks of what was learned in the ledgers below a *state* folder; nothing where there is none."""
    yield from _guard(REVISIONS, check_revisions, state)
    yield from _guard(REWARDS, check_rewards, state)


def _guard(name: str, check: Callable[[Path], Iterator[Check]], state: Path) -> Iterator[Check]:
    try:
        yield from check(state)
    except (DeedbookError, OSError) as problem:
        yield Check(name, "fault", f"cannot be checked: {problem}", "deedbook verify")


def check_revisions(state: Path) -> Iterator[Check]:
    """Yield the check that each recorded revision follows from the tasks that it names; raises `LedgerError`."""
    revisions = list(_read_revisions(state))
    records = read_records(state) if revisions else []
    faults = [
        Check(REVISIONS, "fault", f"event {event.seq} of the workspace ledger: {why}", "deedbook swe routing report")
        for event in revisions
        for why in check_revision(event.payload, records)
    ]
    yield from first_faults(faults)
    if revisions and not faults:
        yield Check(REVISIONS, "ok", f"{len(revisions)} follow from the tasks that they name")


def _read_revisions(state: Path) -> Iterator[Event]:
    place = state / "workspace" / LEDGER_FILE
    if place.exists() and MARK in place.read_bytes():
        yield from (event for event in read(place) if event.type == ROUTING_REVISED)


def check_rewards(state: Path) -> Iterator[Check]:
    """Yield the check that each reward follows from the events before it; raises `LedgerError`."""
    faults, count = [], 0
    for place in list_sessions(state):
        events = read_events(place)
        for index, event in enumerate(events):
            if event.type == REWARDED and "reward" in event.payload:
                count += 1
                if why := _find_difference(events[:index], event):
                    found = f"event {event.seq} of session {place.parent.name}: {why}"
                    faults.append(Check(REWARDS, "fault", found, "deedbook verify"))
    yield from first_faults(faults)
    if count and not faults:
        yield Check(REWARDS, "ok", f"{count} follow from the events of their tasks")


def _find_difference(before: list[Event], event: Event) -> str:
    """Return what differs in a recorded reward from the one that the events *before* it give."""
    task, recorded = event.payload["task_id"], event.payload["reward"]
    try:
        mentions = [Mention.parse(each) for each in recorded["patterns"]]
        again = compute_reward(TaskRecord.from_events(before, task), recorded["timestamp"], mentions)
    except (LookupError, TypeError) as problem:
        return f"the reward of {task} cannot be computed again: {problem!r}"
    names = [name for name in again if again[name] != recorded.get(name)]
    return f"the reward of {task} differs in {', '.join(names)}" if names else ""
