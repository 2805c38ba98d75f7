"""A fork: a session that continues from a point in another's past. The work is requested again, at the same door."""

from collections.abc import Sequence

import attrs

from deedbook.continuation.parent import ParentSession
from deedbook.contract import Json
from deedbook.format.errors import Err, LedgerError, Ok, Result, fault
from deedbook.kernel import Kernel
from deedbook.sessions.prompts import Reply
from deedbook.sessions.run_journal import SessionOrigin
from deedbook.sessions.session import Session

from .past import RecordedPast, refuse_settled
from .recall import Recall
from .work import Task, list_work


@attrs.frozen(eq=False)
class Fork:
    """The work of a fork: the *tasks* up to the event, those *after* it, and the recorded past (*recall*)."""

    recall: Recall
    tasks: Sequence[Task]
    after: Sequence[Task]

    @property
    def origin(self) -> SessionOrigin:
        """The new session's record of its origin."""
        parent, at = self.recall.past.parent, self.recall.past.at
        payload = {
            "session": parent.session,
            "seq": at,
            "hash": parent.hashes[at],
            "goes_on": self.recall.goes_on or bool(self.after),
        }
        recall = self.recall
        return SessionOrigin("session.forked", payload, recall.journal, parent.session, recall.serve_approved)


def plan_fork(
    kernel: Kernel, parent: ParentSession, at: int, *, goes_on: bool, leaves: bool, prompts: Sequence[str]
) -> Fork:
    """Return the fork of *parent* at the event *at*.

    *goes_on*: the parent's unfinished and later work is also done; with *prompts* these are run instead. Raises
    `LedgerError`: ``FORK_REFUSED`` for an event that does not exist, ``FORK_INCOMPLETE`` if a prompt was erased.
    """
    if not 0 <= at < len(parent.events):
        why = f"session {parent.session} has the events 0 to {len(parent.events) - 1}, and no event {at}"
        raise LedgerError(fault("FORK_REFUSED", why))
    requested = list(list_work(parent))
    later = [task for task in requested if task.seq > at] if goes_on else []
    after = [Task(at, "run", text=prompt) for prompt in prompts] if prompts else later
    tasks = [task for task in requested if task.seq <= at]
    for task in (*tasks, *after):
        if task.why and task.kind != "call":
            why = f"event {task.seq} of session {parent.session} cannot be asked for again: {task.why}"
            raise LedgerError(fault("FORK_INCOMPLETE", why))
    refuse_settled(parent, at)
    recall = Recall(RecordedPast(parent, at), kernel.sealer, goes_on=goes_on and not prompts, leaves=leaves)
    return Fork(recall, tasks, after)


def redo_work(session: Session, fork: Fork) -> Result[Json | Reply]:
    """Request all work again in *session*; return the last result, or an `Err` if the session diverged."""
    recall = fork.recall
    recall.note = lambda payload: session.note("call.diverged", "runtime", payload)
    result: Result[Json | Reply] = Ok(None)
    for task in fork.tasks:
        result = _ask(session, recall, task)
        if task.why and recall.state == "serving":
            _leave_past(session, recall, result)
    _end_recall(session, recall)
    if recall.state != "diverged":
        if fork.after:
            recall.resume()
        for task in fork.after:
            result = _ask(session, recall, task)
    return Err(recall.why) if recall.state == "diverged" and recall.why else result


def _ask(session: Session, recall: Recall, task: Task) -> Result[Json | Reply]:
    if task.kind == "run":
        result = session.run(task.text, task.flow)
        return result if isinstance(result, Err) else Ok(result.value)
    if task.kind == "submit":
        submitted = session.submit(task.text)
        return submitted if isinstance(submitted, Err) else Ok(None)
    if task.why:
        return Err(fault("FORK_INCOMPLETE", f"{task.ability}: {task.why}"))
    journal = recall.journal(session.door, session.note, session.cause)
    return journal.request(session.caller, task.ability, task.args, session.cause)


def _leave_past(session: Session, recall: Recall, result: Result[Json | Reply]) -> None:
    """Leave the past at a task that cannot be requested again."""
    first = next(recall.past.due(), None)
    if isinstance(result, Err) and first is not None:
        recall.leave(result.error, [])
        session.note("call.diverged", "runtime", recall.describe_divergence(first))


def _end_recall(session: Session, recall: Recall) -> None:
    """Leave the past if a part of it was not requested again."""
    pending = [made for made in recall.past.remaining if made.kind != "flow" and made.outcome is not None]
    if recall.state == "serving" and pending:
        first, more = pending[0], f", and {len(pending) - 1} more" if pending[1:] else ""
        name = (
            f"event {first.intent.seq} of session {recall.past.parent.session}, a {first.intent.type} of {first.name}"
        )
        recall.leave(fault("FORK_DIVERGED", f"{name}, was not asked for again{more}"), [])
        session.note("call.diverged", "runtime", recall.describe_divergence(first))
    recall.end()
