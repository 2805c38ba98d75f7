"""What became of a run that nobody has ended: told from the ledger of the session in which it ran.

The intent of an effect stands there before the effect begins, so a run without an intent has done nothing, and one
whose intent has an outcome has that. What is left is unknown.
"""

from collections.abc import Container
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from deedbook.contract import Event, Object
from deedbook.format.errors import DeedbookError
from deedbook.format.families import OUTCOMES
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.sealed import open_values
from deedbook.policy.bound import BoundAbility

_RESULTS: Final = {
    "tool.result": "result",
    "flow.result": "result",
    "llm.response": "response",
    "memory.result": "result",
}


class Aftermath(NamedTuple):
    """What the record says: ``ready`` if nothing was begun, ``waiting`` if a person was asked (*approval*).

    *call* is the idempotency key of the call.

    *known*: the result is *result*, as the caller was to see it; otherwise *code* and *message* say what there is.
    """

    state: Literal["ready", "waiting", "succeeded", "failed", "unknown"]
    call: str | None = None
    known: bool = False
    result: Any = None
    code: str | None = None
    message: str | None = None
    approval: str | None = None
    source: str = "record"


def of_run(state: Path, session: str, span: str, bound: BoundAbility) -> Aftermath:
    """Return what became of the run of *bound* that began under *span* in *session*.

    Where hooks look at its results, nobody gets one without their word.
    """
    place = state / "sessions" / session
    try:
        events = list(read(place))
    except (DeedbookError, OSError):
        return Aftermath("unknown")
    intent = _intent(events, {span})
    if intent is None:
        asked = [e.payload["approval"] for e in events if e.type == "approval.requested" and e.parent == span]
        return Aftermath("waiting", approval=str(asked[-1])) if asked else Aftermath("ready")
    return _told(place, events, intent, bound)


def performed_for(state: Path, session: str, approval: str, runs: Container[tuple[str, str]]) -> bool:
    """Say whether *session* performed by itself what one of *runs*, each a session and a span in it, has asked for.

    Calls that are alike share a request: what another of them did with the answer is not what became of this one.
    Raises `DeedbookError` or `OSError` where that cannot be read.
    """
    resumed = (event.payload for event in read(state / "sessions" / session) if event.type == "approval.resumed")
    said = next((each for each in resumed if each["approval"] == approval), None)
    if said is None:
        return False
    return asked_by(state, said, runs)


def asked_by(state: Path, request: Object, runs: Container[tuple[str, str]]) -> bool:
    """Say whether one of *runs* filed what *request* names by its session and the span there; raises as above."""
    filed = str(request["session"])
    above = next((event.parent for event in read(state / "sessions" / filed) if event.span == request["span"]), None)
    return above is not None and (filed, above) in runs


def of_approval(state: Path, session: str, approval: str, bound: BoundAbility) -> Aftermath:
    """Return what became of the call that *session* began under the *approval* of a person."""
    place = state / "sessions" / session
    try:
        events = list(read(place))
    except (DeedbookError, OSError):
        return Aftermath("unknown")
    above = {e.span for e in events if e.type.startswith("approval.") and e.payload.get("approval") == approval}
    intent = _intent(events, above)
    return _told(place, events, intent, bound) if intent else Aftermath("ready")


def _intent(events: list[Event], above: set[str]) -> Event | None:
    """Return the intent under one of *above*, straight or after a person was asked."""
    for event in events:
        if event.parent in above:
            if event.type in OUTCOMES:
                return event
            if event.type.startswith("approval."):
                above = {*above, event.span}
    return None


def _told(place: Path, events: list[Event], intent: Event, bound: BoundAbility) -> Aftermath:
    call = f"{place.name}:{intent.span}"
    below = [event for event in events if event.parent == intent.span]
    outcome = next((event for event in below if event.type in OUTCOMES[intent.type]), None)
    if outcome is None:
        return Aftermath("unknown", call)
    if outcome.type not in _RESULTS:
        said = outcome.payload
        lost = said["outcome"] == "unknown" or (bound.durable and said["outcome"] != "failed")
        return Aftermath("unknown" if lost else "failed", call, code=str(said["code"]), message=str(said["message"]))
    seen = next((event for event in below if event.type == "hook.fired"), None)
    faulty = any(event.type == "schema.violation" for event in below)
    if faulty or (bound.observers and seen is None) or (seen is not None and seen.payload["decision"] == "deny"):
        why = f"the result stands in session {place.name} and is withheld: who looks at it first has not let it by"
        return Aftermath("succeeded", call, code="GATE_DENIED", message=why)
    left = outcome.payload[_RESULTS[outcome.type]]
    if seen is not None and "output" in seen.payload:
        left = seen.payload["output"]
    try:
        with Folder.at(place) as folder:
            return Aftermath("succeeded", call, known=True, result=open_values(folder, left))
    except (DeedbookError, OSError):
        why = f"the result stood in session {place.name} and was erased"
        return Aftermath("succeeded", call, code="TASK_INCOMPLETE", message=why)
