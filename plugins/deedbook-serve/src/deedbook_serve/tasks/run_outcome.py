"""The outcome of a run without a recorded end, read from the ledger of the session in which it ran.

The ledger records the intent of an effect before the effect begins. So a run without an intent has done nothing, and an
intent with an outcome has that outcome. In all other cases the outcome is unknown.
"""

from collections.abc import Container
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from deedbook.contract import Event, Object
from deedbook.format.errors import DeedbookError, Err
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import open_values
from deedbook.policy.bound import BoundAbility
from deedbook_serve.archive import SessionArchive

from .run_results import read_context, refers_to

_RESULTS: Final = {
    "tool.result": "result",
    "flow.result": "result",
    "llm.response": "response",
    "memory.result": "result",
}


class RunOutcome(NamedTuple):
    """A run's outcome: ``ready`` if nothing began, ``waiting`` if a person was asked (*approval*).

    *call* is the idempotency key of the call.

    *known*: *result* holds the result as the caller was to see it; otherwise *code* and *message* say why there is
    none.
    """

    state: Literal["ready", "waiting", "succeeded", "failed", "unknown"]
    call: str | None = None
    known: bool = False
    result: Any = None
    code: str | None = None
    message: str | None = None
    approval: str | None = None
    source: str = "record"


def read_run_outcome(state: Path, session: str, span: str, bound: BoundAbility) -> RunOutcome:
    """Return the outcome of the run of *bound* that began under *span* in *session*.

    A result that hooks review is withheld unless they have passed it.
    """
    place = state / "sessions" / session
    try:
        events = list(read(place))
    except (DeedbookError, OSError):
        return RunOutcome("unknown")
    intent = _find_intent(events, {span})
    if intent is None:
        approvals = [e.payload["approval"] for e in events if e.type == "approval.requested" and e.parent == span]
        return RunOutcome("waiting", approval=str(approvals[-1])) if approvals else RunOutcome("ready")
    return _read_outcome(place, events, intent, bound)


def was_performed_for(state: Path, session: str, approval: str, runs: Container[tuple[str, str]]) -> bool:
    """Return whether *session* performed a request of one of *runs*, each a session and a span in it.

    Equal calls share a request: another call's use of the answer is not the outcome of this one. Raises `DeedbookError`
    or `OSError` if the ledger cannot be read.
    """
    resumed = (event.payload for event in read(state / "sessions" / session) if event.type == "approval.resumed")
    request = next((each for each in resumed if each["approval"] == approval), None)
    if request is None:
        return False
    return was_requested_by(state, request, runs)


def was_requested_by(state: Path, request: Object, runs: Container[tuple[str, str]]) -> bool:
    """Return whether one of *runs* made *request*, which names its session and span.

    Raises like `was_performed_for`.
    """
    filed = str(request["session"])
    above = next((event.parent for event in read(state / "sessions" / filed) if event.span == request["span"]), None)
    return above is not None and (filed, above) in runs


def read_approved_outcome(state: Path, session: str, approval: str, bound: BoundAbility) -> RunOutcome:
    """Return the outcome of the call that *session* began under the *approval* of a person."""
    place = state / "sessions" / session
    try:
        events = list(read(place))
    except (DeedbookError, OSError):
        return RunOutcome("unknown")
    above = {e.span for e in events if e.type.startswith("approval.") and e.payload.get("approval") == approval}
    intent = _find_intent(events, above)
    return _read_outcome(place, events, intent, bound) if intent else RunOutcome("ready")


def _find_intent(events: list[Event], above: set[str]) -> Event | None:
    """Return the intent under one of *above*, directly or below an approval."""
    for event in events:
        if event.parent in above:
            if event.type in OUTCOMES:
                return event
            if event.type.startswith("approval."):
                above = {*above, event.span}
    return None


def _read_outcome(place: Path, events: list[Event], intent: Event, bound: BoundAbility) -> RunOutcome:
    call = f"{place.name}:{intent.span}"
    below = [event for event in events if event.parent == intent.span]
    outcome = next((event for event in below if event.type in OUTCOMES[intent.type]), None)
    if outcome is None:
        return RunOutcome("unknown", call)
    if outcome.type not in _RESULTS:
        payload = outcome.payload
        lost = payload["outcome"] == "unknown" or (bound.durable and payload["outcome"] != "failed")
        return RunOutcome(
            "unknown" if lost else "failed", call, code=str(payload["code"]), message=str(payload["message"])
        )
    reviewed = next((event for event in below if event.type == "hook.fired"), None)
    faulty = any(event.type == "schema.violation" for event in below)
    if (
        faulty
        or (bound.observers and reviewed is None)
        or (reviewed is not None and reviewed.payload["decision"] == "deny")
    ):
        why = f"the result stands in session {place.name} and is withheld: who looks at it first has not let it by"
        return RunOutcome("succeeded", call, code="GATE_DENIED", message=why)
    value = outcome.payload[_RESULTS[outcome.type]]
    if reviewed is not None and "output" in reviewed.payload:
        value = reviewed.payload["output"]
    try:
        with Folder.at(place) as folder:
            return _conclude(place, intent.span, call, open_values(folder, value))
    except (DeedbookError, OSError):
        why = f"the result stood in session {place.name} and was erased"
        return RunOutcome("succeeded", call, code="TASK_INCOMPLETE", message=why)


def _conclude(place: Path, span: str, call: str, value: Any) -> RunOutcome:
    """Return the outcome of a call with the result *value*; it failed if its run did not complete."""
    if refers_to(value, span):
        with Folder.at(place.parents[1]) as state:
            context = read_context(SessionArchive(state).read_events(place.name), span)
        ended = context.outcome() if context else None
        if isinstance(ended, Err):
            error = ended.error
            return RunOutcome("failed", call, known=True, result=value, code=error.code, message=error.message)
    return RunOutcome("succeeded", call, known=True, result=value)
