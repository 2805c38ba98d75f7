"""The outcome of a flow that keeps a context, for callers that cannot read the context.

The ledgers keep what the flow gave, which is a reference to its context; the state and the reply are read from the
context, so that a run that did not complete is no success.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deedbook.contract import Event, Json
from deedbook.format.context import ContextFold, RunContext
from deedbook.format.errors import DeedbookError, Err, Ok, Result, TaskError, fault
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook.sessions.session import Session
from deedbook_serve.archive import SessionArchive

_ANSWERED: Final = frozenset({"approval.granted", "approval.refused", "approval.expired", "approval.withdrawn"})


def conclude(session: Session, span: str, result: Result[Json]) -> Result[Json]:
    """Return the outcome of the call *span* of *session* with *result*: that of the run, for a flow with a context.

    If a call inside it needs a person, the details have the requests that wait (`list_approvals`).
    """
    context = session.find_context(result.value) if isinstance(result, Ok) else None
    outcome = context.outcome() if context else result
    if isinstance(outcome, Ok) or outcome.error.code != "NEEDS_HUMAN":
        return outcome
    found = list_approvals(find_requests(read(session.ledger.place), span))
    return Err(outcome.error, {**outcome.details, **found})


def conclude_recorded(state: Path, call: str | None, result: Json) -> Result[Json]:
    """Act like `conclude` for the recorded *result* of *call* (its idempotency key) in the *state* folder.

    Raises `TaskError` (``TASK_INCOMPLETE``) if the context cannot be read any more.
    """
    session, _, span = (call or "").partition(":")
    if not refers_to(result, span):
        return Ok(result)
    try:
        with Folder.at(state) as folder:
            context = read_context(SessionArchive(folder).read_events(session), span)
    except (DeedbookError, OSError):
        context = None
    if context is None:
        why = f"the run {span} of session {session} cannot be read any more"
        raise TaskError(fault("TASK_INCOMPLETE", why))
    return context.outcome()


class OpenRequests:
    """The requests for approval beneath an event that their session has no answer to: a fold of its events."""

    def __init__(self, span: str) -> None:
        self._inside = {span}
        self._open: dict[str, str] = {}

    @property
    def open(self) -> list[str]:
        """The ids of the requests, each once, in order."""
        return list(dict.fromkeys(self._open.values()))

    def step(self, event: Event) -> None:
        """Add *event*."""
        if event.parent not in self._inside:
            return
        self._inside.add(event.span)
        if event.type == "approval.requested":
            self._open[event.span] = str(event.payload["approval"])
        elif event.type in _ANSWERED:
            self._open.pop(event.parent, None)


def find_requests(events: Iterable[Event], span: str) -> list[str]:
    """Return the ids of the requests beneath *span* to which *events*, those of its session, have no answer."""
    requests = OpenRequests(span)
    for event in events:
        requests.step(event)
    return requests.open


def read_approvals(state: Path, call: str | None) -> dict[str, Any]:
    """Return the requests beneath a recorded *call* (its idempotency key), as `list_approvals` does."""
    session, _, span = (call or "").partition(":")
    with suppress(DeedbookError, OSError):
        return list_approvals(find_requests(read(state / "sessions" / session), span))
    return {}


def list_approvals(requests: Sequence[str]) -> dict[str, Any]:
    """Return *requests* as details of an `Err`: the latest as ``approval``, and several also as ``approvals``."""
    if not requests:
        return {}
    return {"approval": requests[-1], **({"approvals": list(requests)} if len(requests) > 1 else {})}


def refers_to(result: Json, span: str) -> bool:
    """Return whether *result* is what a flow that keeps a context gives; *span* is that of its call."""
    return bool(span) and result == {"context": span}


def read_context(events: Iterable[Event], span: str) -> RunContext | None:
    """Return the context of the run *span* from the events of its session, if they have it."""
    return fold(ContextFold(), (event for event in events if event.parent == span)).get(span)
