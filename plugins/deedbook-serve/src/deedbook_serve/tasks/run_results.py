"""The outcome of a flow that keeps a context, for callers that cannot read the context.

The ledgers keep what the flow gave, which is a reference to its context; the state and the reply are read from the
context, so that a run that did not complete is no success.
"""

from collections.abc import Iterable
from pathlib import Path

from deedbook.contract import Event, Json
from deedbook.format.context import ContextFold, RunContext
from deedbook.format.errors import DeedbookError, Ok, Result, TaskError, fault
from deedbook.format.files import Folder
from deedbook.format.folds import fold
from deedbook.sessions.session import Session
from deedbook_serve.archive import SessionArchive


def conclude(session: Session, result: Json) -> Result[Json]:
    """Return the outcome of the run that *result*, given in *session*, refers to; *result* itself for any other."""
    context = session.find_context(result)
    return Ok(result) if context is None else context.outcome()


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


def refers_to(result: Json, span: str) -> bool:
    """Return whether *result* is what a flow that keeps a context gives; *span* is that of its call."""
    return bool(span) and result == {"context": span}


def read_context(events: Iterable[Event], span: str) -> RunContext | None:
    """Return the context of the run *span* from the events of its session, if they have it."""
    return fold(ContextFold(), (event for event in events if event.parent == span)).get(span)
