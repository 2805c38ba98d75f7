"""Doing the actions of a request in their order, each recorded before it is begun and before its client is told."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from deedbook.call.session import Session
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import CODES, DeedbookError, DomainError, Err, LedgerError, Result, fault, recordable
from deedbook.format.events import Entry, label, new_id
from deedbook_serve.tasks.runner import Created, Ran, Task, Tasks

from .acts import DONE, GUARD, PREFLIGHT, RECEIVED, REFUSED, Act
from .batches import Step

OK: Final = "ok"
_DENIED: Final = 3
_MOST: Final = 2000

Done = Mapping[str, Mapping[str, Any]]
Work = Callable[[Step, Done], dict[str, Any]]


class BatchRunner:
    """Does actions in a session, which nobody else does anything in meanwhile; *tasks* are its, *end* ends it."""

    def __init__(self, session: Session, tasks: Tasks, end: Callable[[], None]) -> None:
        self._session, self._tasks = session, tasks
        self._size = 0
        self._end = end
        self._work: Mapping[str, Work] = {
            "CALL": self._call,
            "DIRECT_RUN": self._direct,
            "CREATE_TASK": self._create,
            "UPDATE_TASK": self._update,
            "RUN_TASK": self._run,
            "GET_TASK": self._get,
            "DELETE_TASK": self._delete,
            "END_SESSION": self._bare,
        }

    def all(self, steps: Sequence[Step], request: str, digest: str) -> dict[str, dict[str, Any]]:
        """Do *steps* in their order; return what came of each, by id. *request* names them in the ledger."""
        done: dict[str, dict[str, Any]] = {}
        for step in steps:
            done[step.id] = {"id": step.id, "action": step.name, **self._one(step, request, digest, done)}
            self._size += len(canonical.encode_payload(done[step.id]))
        return done

    def _one(self, step: Step, request: str, digest: str, done: Done) -> dict[str, Any]:
        """Do one action; whatever goes wrong with it, the others learn of it and the client is told."""
        try:
            if self._session.ended:
                return ended(self._session.id)
            span = self._receive(step, request, digest)
            why = self._why_not(step, done)
            outcome = self._recorded(step, span, _skipped(why) if why else self._do(step, span, done))
            if step.name == "END_SESSION" and outcome["status"] == OK:
                self._end()
        except DeedbookError as problem:
            return failed(problem.error)
        return outcome

    def _why_not(self, step: Step, done: Done) -> str:
        """Say why an action is not begun, if anything speaks against it."""
        if self._size > canonical.MAX_BYTES:
            return "the answer has more than 16 MiB already; ask for it in a request of its own"
        waits = next((name for name in step.waits if done[name]["status"] != OK), None)
        return f"it waits for {waits!r}, which was not ok" if waits else ""

    def _do(self, step: Step, span: str, done: Done) -> dict[str, Any]:
        with self._session.under(span):
            try:
                return self._work[step.name](step, done)
            except DeedbookError as problem:
                return failed(problem.error)

    # --- the actions --------------------------------------------------------------------------------------------------

    def _call(self, step: Step, _: Done) -> dict[str, Any]:
        key = step.said.get("idempotency_key")
        return outcome(self._tasks.direct_run(step.said["ability"], step.said.get("args", {}), idempotency_key=key))

    def _direct(self, step: Step, done: Done) -> dict[str, Any]:
        if self._session.caller.actor != "user":
            why = "DIRECT_RUN is for persons; a client makes a task of it, or calls the ability"
            return failed(fault("TOOL_NOT_ALLOWED", why))
        return self._call(step, done)

    def _create(self, step: Step, _: Done) -> dict[str, Any]:
        key = step.said.get("idempotency_key")
        return made(self._tasks.create(step.said["ability"], step.said.get("args", {}), idempotency_key=key))

    def _update(self, step: Step, done: Done) -> dict[str, Any]:
        task = _task(step, done)
        return {"task": task, **made(self._tasks.update(task, step.said.get("args")))}

    def _run(self, step: Step, done: Done) -> dict[str, Any]:
        task = _task(step, done)
        return {**outcome(self._tasks.run(task)), "task": task}

    def _get(self, step: Step, done: Done) -> dict[str, Any]:
        task = _task(step, done)
        found = self._tasks.get(task)
        return {**(failed(found.error) if isinstance(found, Err) else shown(found.value)), "task": task}

    def _delete(self, step: Step, done: Done) -> dict[str, Any]:
        task = _task(step, done)
        deleted = self._tasks.delete(task)
        return {**(failed(deleted.error) if isinstance(deleted, Err) else {"status": OK}), "task": task}

    def _bare(self, _: Step, __: Done) -> dict[str, Any]:
        return {"status": OK}

    # --- the record ---------------------------------------------------------------------------------------------------

    def _receive(self, step: Step, request: str, digest: str) -> str:
        said = {"request": request, "digest": digest, "id": step.id, "action": step.name, "after": list(step.waits)}
        return note(self._session, RECEIVED, self._session.caller.actor, said, self._session.cause)

    def _recorded(self, step: Step, span: str, outcome: dict[str, Any]) -> dict[str, Any]:
        """Record what came of an action, and return it; what is not in the ledger is not told as done."""
        try:
            self._done(step, span, outcome)
        except LedgerError as problem:
            return failed(problem.error) if outcome["status"] == OK else outcome
        return outcome

    def _done(self, step: Step, span: str, outcome: Mapping[str, Any]) -> None:
        said = {"id": step.id, "status": outcome["status"]}
        if "task" in outcome:
            said["task"] = outcome["task"]
        if "error" in outcome:
            said |= outcome["error"]
        note(self._session, DONE, "runtime", said, span)


def note(session: Session, event_type: str, actor: str, said: Object, cause: str, principal: str = "") -> str:
    """Append an event about actions to *session*'s ledger and return its span; raises `LedgerError`."""
    span = session.ledger.span()
    who = label(event_type, actor, principal or session.principal.id)
    session.ledger.append([Entry(who, span, cause, canonical.encode(dict(said)))])
    return span


def refuse(session: Session, error: DomainError, principal: str) -> None:
    """Record that something was asked of *session* by *principal* that was not done; raises `LedgerError`."""
    note(session, REFUSED, "policy", _said(error), session.ledger.root, principal)


def new_request() -> str:
    """Return a name for a request that nobody gave one; no idempotency key is like it."""
    return f"~{new_id()}"


# --- what came of it --------------------------------------------------------------------------------------------------


def outcome(result: Result[Ran]) -> dict[str, Any]:
    """Return what a use of an ability came to, as its client is told."""
    if isinstance(result, Err):
        approval = {"approval": result.details["approval"]} if "approval" in result.details else {}
        return {**failed(result.error), **approval, **hints(result.details.get("signals", {}))}
    return {"status": OK, "result": result.value.result, **hints(result.value.signals)}


def made(result: Result[Created]) -> dict[str, Any]:
    """Return what the making or changing of a task came to, as its client is told."""
    if isinstance(result, Err):
        return {**failed(result.error), **hints(result.details.get("signals", {}))}
    created = result.value
    if created.unavailable is not None:
        return {**failed(created.unavailable), **hints(created.signals)}
    task = {"task": created.task.id} if created.task else {}
    return {"status": OK, **task, **hints(created.signals)}


def shown(task: Task) -> dict[str, Any]:
    """Return a task as its client is shown it."""
    return {"status": OK, "result": task.as_json()}


def failed(error: DomainError) -> dict[str, Any]:
    """Return why nothing came of an action."""
    return {"status": status(error.code), "error": _said(error)}


def _said(error: DomainError) -> dict[str, str]:
    """Return *error* as the ledger and the client are told, word for word."""
    return {"code": error.code, "message": recordable(str(error), _MOST)}


def status(code: str) -> str:
    """Return the status that the stable *code* leads to."""
    if code in ("NEEDS_HUMAN", "TASK_UNAVAILABLE"):
        return "needs_human" if code == "NEEDS_HUMAN" else "unavailable"
    known = CODES.get(code)
    return "denied" if known is not None and known.exit == _DENIED else "failed"


def ended(session: str) -> dict[str, Any]:
    """Return what becomes of an action after its session's end."""
    return failed(fault("SESSION_ENDED", f"session {session} has ended"))


def unbegun() -> dict[str, Any]:
    """Return what is said of an action of an open session that was asked for before and never begun."""
    return _skipped("it could not be begun when it was asked for; ask for it under another key")


def hints(signals: Mapping[str, Any]) -> dict[str, Any]:
    """Return what hooks said of a task before it was made and of a call before it was made."""
    names = {"preflight": PREFLIGHT, "guard": GUARD}
    return {name: list(signals[signal]) for name, signal in names.items() if signal in signals}


def _task(step: Step, done: Done) -> str:
    """Return the id of the task that an action is about; raises `DeedbookError` where the one before made none."""
    said = step.said["task"]
    if isinstance(said, str):
        return said
    found: str | None = done[said["from"]].get("task")
    if found is None:
        why = f"the action {said['from']!r} is about no task"
        raise DeedbookError(fault("TASK_NOT_FOUND", why))
    return found


def _skipped(why: str) -> dict[str, Any]:
    return {"status": "skipped", "error": _said(fault("ACTION_SKIPPED", why))}


# --- again ------------------------------------------------------------------------------------------------------------


def again(
    known: Mapping[str, Act],
    steps: Sequence[Step],
    digest: str,
    absent: Mapping[str, Any],
    find: Callable[[str], Task | None],
) -> dict[str, dict[str, Any]]:
    """Return what came of the *steps* of a request, by id; *known* is what the ledger holds of it.

    *absent* is said of those that it does not know; *find* shows a task. Raises `DeedbookError` (``REQUEST_REUSED``) if
    other actions came under the same name.
    """
    if any(act.digest != digest for act in known.values()):
        why = "the idempotency key came with other actions before; take another for these"
        raise DeedbookError(fault("REQUEST_REUSED", why))
    return {
        step.id: {
            "id": step.id,
            "action": step.name,
            **(_again(step, known[step.id], find) if step.id in known else absent),
        }
        for step in steps
    }


def _again(step: Step, act: Act, find: Callable[[str], Task | None]) -> dict[str, Any]:
    if act.done is None:
        why = "it was begun, and the process ended before its end was recorded; the session's ledger has what is known"
        if step.name == "RUN_TASK":
            why += "; RUN_TASK of the task tells more, and where nobody knows, a person says: deedbook tasks decide"
        return {**failed(fault("OUTCOME_UNKNOWN", why)), **hints(act.signals)}
    told: dict[str, Any] = {"status": act.done["status"], **hints(act.signals)}
    if "task" in act.done:
        told["task"] = act.done["task"]
    if "code" in act.done:
        told["error"] = {"code": act.done["code"], "message": act.done.get("message", "")}
    elif act.gave:
        told["result"] = act.result
    elif step.name in ("RUN_TASK", "GET_TASK") and (task := find(act.done["task"])) is not None:
        told["result"] = task.result if step.name == "RUN_TASK" else task.as_json()
    if act.approval and told["status"] == "needs_human":
        told["approval"] = act.approval
    return told
