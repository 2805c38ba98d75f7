"""Performs the actions of a request in order; each is recorded before it begins and before its client is answered."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import CODES, DeedbookError, DomainError, Err, LedgerError, Result, fault, recordable
from deedbook.format.events import Entry, label, new_id
from deedbook.sessions.session import Session
from deedbook_serve.tasks.run_results import list_approvals
from deedbook_serve.tasks.runner import Created, RunResult, Task, Tasks

from .action_records import DONE, GUARD, PREFLIGHT, RECEIVED, REFUSED, STARTED, ActionRecord
from .batches import Step
from .prompt_runs import PromptRun, PromptRuns

OK: Final = "ok"
_DENIED: Final = 3
_MAX_MESSAGE: Final = 2000

Outcomes = Mapping[str, Mapping[str, Any]]
Work = Callable[[Step, Outcomes], dict[str, Any]]


class BatchRunner:
    """Performs actions in a session that it has exclusively; *tasks* are the session's, *end* ends it.

    *runs* are the runs of prompts of the whole runtime.
    """

    def __init__(self, session: Session, tasks: Tasks, runs: PromptRuns, end: Callable[[], None]) -> None:
        self._session, self._tasks, self._runs = session, tasks, runs
        self._size = 0
        self._end = end
        self._work: Mapping[str, Work] = {
            "CALL": self._call,
            "DIRECT_RUN": self._direct_run,
            "CREATE_TASK": self._create,
            "UPDATE_TASK": self._update,
            "RUN_TASK": self._run,
            "GET_TASK": self._get,
            "DELETE_TASK": self._delete,
            "RUN": self._run_prompt,
            "RESUME_RUN": self._resume_prompt,
            "END_SESSION": self._do_nothing,
        }

    def run(self, steps: Sequence[Step], request: str, digest: str) -> dict[str, dict[str, Any]]:
        """Perform *steps* in order; return the outcome of each, by id. *request* names them in the ledger."""
        done: dict[str, dict[str, Any]] = {}
        for step in steps:
            done[step.id] = {"id": step.id, "action": step.name, **self._run_step(step, request, digest, done)}
            self._size += len(canonical.encode_payload(done[step.id]))
        return done

    def _run_step(self, step: Step, request: str, digest: str, done: Outcomes) -> dict[str, Any]:
        """Perform one action; a failure is its outcome and does not stop the other actions."""
        try:
            if self._session.ended:
                return describe_ended(self._session.id)
            span = self._receive(step, request, digest)
            why = self._find_obstacle(step, done)
            outcome = self._record_outcome(
                step, span, _describe_skipped(why) if why else self._perform(step, span, done)
            )
            if step.name == "END_SESSION" and outcome["status"] == OK:
                self._end()
        except DeedbookError as problem:
            return describe_failure(problem.error)
        return outcome

    def _find_obstacle(self, step: Step, done: Outcomes) -> str:
        """Return the reason why an action cannot begin, if there is one."""
        if self._size > canonical.MAX_BYTES:
            return "the answer has more than 16 MiB already; ask for it in a request of its own"
        waits = next((name for name in step.depends_on if done[name]["status"] != OK), None)
        return f"it waits for {waits!r}, which was not ok" if waits else ""

    def _perform(self, step: Step, span: str, done: Outcomes) -> dict[str, Any]:
        with self._session.under(span):
            try:
                return self._work[step.name](step, done)
            except DeedbookError as problem:
                return describe_failure(problem.error)

    # --- the actions -------------------------------------------------------------------------------------------------

    def _call(self, step: Step, _: Outcomes) -> dict[str, Any]:
        key = step.request.get("idempotency_key")
        return describe_run(
            self._tasks.direct_run(step.request["ability"], step.request.get("args", {}), idempotency_key=key)
        )

    def _direct_run(self, step: Step, done: Outcomes) -> dict[str, Any]:
        if self._session.caller.actor != "user":
            why = "DIRECT_RUN is for persons; a client makes a task of it, or calls the ability"
            return describe_failure(fault("TOOL_NOT_ALLOWED", why))
        return self._call(step, done)

    def _create(self, step: Step, _: Outcomes) -> dict[str, Any]:
        key = step.request.get("idempotency_key")
        return describe_created(
            self._tasks.create(step.request["ability"], step.request.get("args", {}), idempotency_key=key)
        )

    def _update(self, step: Step, done: Outcomes) -> dict[str, Any]:
        task = _get_task(step, done)
        return {"task": task, **describe_created(self._tasks.update(task, step.request.get("args")))}

    def _run(self, step: Step, done: Outcomes) -> dict[str, Any]:
        task = _get_task(step, done)
        return {**describe_run(self._tasks.run(task)), "task": task}

    def _get(self, step: Step, done: Outcomes) -> dict[str, Any]:
        task = _get_task(step, done)
        found = self._tasks.get(task)
        return {
            **(describe_failure(found.error) if isinstance(found, Err) else describe_task(found.value)),
            "task": task,
        }

    def _delete(self, step: Step, done: Outcomes) -> dict[str, Any]:
        task = _get_task(step, done)
        deleted = self._tasks.delete(task)
        return {**(describe_failure(deleted.error) if isinstance(deleted, Err) else {"status": OK}), "task": task}

    def _run_prompt(self, step: Step, _: Outcomes) -> dict[str, Any]:
        def begin(session: str) -> None:
            payload = {"id": step.id, "session": session}
            record_event(self._session, STARTED, "runtime", payload, self._session.cause)

        return describe_prompt_run(self._runs.run(self._session, step.request, begin))

    def _resume_prompt(self, step: Step, _: Outcomes) -> dict[str, Any]:
        return describe_prompt_run(self._runs.resume(self._session, step.request["run"]))

    def _do_nothing(self, _: Step, __: Outcomes) -> dict[str, Any]:
        return {"status": OK}

    # --- the record --------------------------------------------------------------------------------------------------

    def _receive(self, step: Step, request: str, digest: str) -> str:
        payload = {
            "request": request,
            "digest": digest,
            "id": step.id,
            "action": step.name,
            "after": list(step.depends_on),
        }
        return record_event(self._session, RECEIVED, self._session.caller.actor, payload, self._session.cause)

    def _record_outcome(self, step: Step, span: str, outcome: dict[str, Any]) -> dict[str, Any]:
        """Record the outcome of an action and return it; an outcome that is not recorded is never reported as ok."""
        try:
            self._write_outcome(step, span, outcome)
        except LedgerError as problem:
            return describe_failure(problem.error) if outcome["status"] == OK else outcome
        return outcome

    def _write_outcome(self, step: Step, span: str, outcome: Mapping[str, Any]) -> None:
        payload = {"id": step.id, "status": outcome["status"]}
        if "task" in outcome:
            payload["task"] = outcome["task"]
        if "error" in outcome:
            payload |= outcome["error"]
        record_event(self._session, DONE, "runtime", payload, span)


def record_event(
    session: Session, event_type: str, actor: str, payload: Object, cause: str, principal: str = ""
) -> str:
    """Append an event about actions to *session*'s ledger and return its span; raises `LedgerError`."""
    span = session.ledger.span()
    who = label(event_type, actor, principal or session.principal.id)
    session.ledger.append([Entry(who, span, cause, canonical.encode(dict(payload)))])
    return span


def record_refusal(session: Session, error: DomainError, principal: str) -> None:
    """Record that *principal* asked something of *session* that was refused; raises `LedgerError`."""
    record_event(session, REFUSED, "policy", _describe_error(error), session.ledger.root, principal)


def new_request_name() -> str:
    """Return a name for a request without one; it never equals an idempotency key."""
    return f"~{new_id()}"


# --- outcomes -------------------------------------------------------------------------------------------------------


def describe_run(result: Result[RunResult]) -> dict[str, Any]:
    """Return the outcome of a use of an ability, as the client receives it."""
    if isinstance(result, Err):
        signals = get_signals(result.details.get("signals", {}))
        return {**describe_failure(result.error), **get_approvals(result.details), **signals}
    return {"status": OK, "result": result.value.result, **get_signals(result.value.signals)}


def describe_prompt_run(run: PromptRun) -> dict[str, Any]:
    """Return the outcome of a run of a prompt, as the client receives it."""
    if isinstance(run.result, Err):
        return {**describe_failure(run.result.error), "run": run.session, **get_approvals(run.result.details)}
    return {"status": OK, "result": run.result.value, "run": run.session}


def describe_created(result: Result[Created]) -> dict[str, Any]:
    """Return the outcome of creating or changing a task, as the client receives it."""
    if isinstance(result, Err):
        return {**describe_failure(result.error), **get_signals(result.details.get("signals", {}))}
    created = result.value
    if created.unavailable is not None:
        return {**describe_failure(created.unavailable), **get_signals(created.signals)}
    task = {"task": created.task.id} if created.task else {}
    return {"status": OK, **task, **get_signals(created.signals)}


def describe_task(task: Task) -> dict[str, Any]:
    """Return a task as the client receives it."""
    return {"status": OK, "result": task.as_json()}


def describe_failure(error: DomainError) -> dict[str, Any]:
    """Return the outcome of an action that failed."""
    return {"status": get_status(error.code), "error": _describe_error(error)}


def _describe_error(error: DomainError) -> dict[str, str]:
    """Return *error* as the ledger and the client get it, word for word."""
    return {"code": error.code, "message": recordable(str(error), _MAX_MESSAGE)}


def get_status(code: str) -> str:
    """Return the status for the stable *code*."""
    if code in ("NEEDS_HUMAN", "TASK_UNAVAILABLE"):
        return "needs_human" if code == "NEEDS_HUMAN" else "unavailable"
    recorded = CODES.get(code)
    return "denied" if recorded is not None and recorded.exit == _DENIED else "failed"


def describe_ended(session: str) -> dict[str, Any]:
    """Return the outcome of an action after its session has ended."""
    return describe_failure(fault("SESSION_ENDED", f"session {session} has ended"))


def describe_not_started() -> dict[str, Any]:
    """Return the outcome of a repeated action of an open session that was received before and never began."""
    return _describe_skipped("it could not be begun when it was asked for; ask for it under another key")


def get_approvals(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requests for which a failed call or run waits, from its *details*."""
    return {name: details[name] for name in ("approval", "approvals") if name in details}


def get_signals(signals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the signals of hooks from before a task was created and from before a call."""
    names = {"preflight": PREFLIGHT, "guard": GUARD}
    return {name: list(signals[signal]) for name, signal in names.items() if signal in signals}


def _get_task(step: Step, done: Outcomes) -> str:
    """Return the id of the task of an action; raises `DeedbookError` if the referenced action has no task."""
    reference = step.request["task"]
    if isinstance(reference, str):
        return reference
    found: str | None = done[reference["from"]].get("task")
    if found is None:
        why = f"the action {reference['from']!r} is about no task"
        raise DeedbookError(fault("TASK_NOT_FOUND", why))
    return found


def _describe_skipped(why: str) -> dict[str, Any]:
    return {"status": "skipped", "error": _describe_error(fault("ACTION_SKIPPED", why))}


# --- repeated requests ----------------------------------------------------------------------------------------------


@attrs.frozen
class OutcomeSources:
    """Where outcomes are read that stand outside the session: *find_task* returns a task, *read_run* a prompt's run."""

    find_task: Callable[[str], Task | None]
    read_run: Callable[[str], PromptRun]


def rebuild_outcomes(
    recorded: Mapping[str, ActionRecord],
    steps: Sequence[Step],
    digest: str,
    absent: Mapping[str, Any],
    sources: OutcomeSources,
) -> dict[str, dict[str, Any]]:
    """Return the outcomes of a repeated request's *steps*, by id, from the *recorded* actions.

    *absent* is the outcome of actions that the ledger does not have. Raises `DeedbookError` (``REQUEST_REUSED``) if the
    request had other actions before.
    """
    if any(act.digest != digest for act in recorded.values()):
        why = "the idempotency key came with other actions before; take another for these"
        raise DeedbookError(fault("REQUEST_REUSED", why))
    return {
        step.id: {
            "id": step.id,
            "action": step.name,
            **(_rebuild_outcome(step, recorded[step.id], sources) if step.id in recorded else absent),
        }
        for step in steps
    }


def _rebuild_outcome(step: Step, act: ActionRecord, sources: OutcomeSources) -> dict[str, Any]:
    if (run := act.run or step.request.get("run", "")) and _is_read_from_run(act):
        return _rebuild_run(run, sources)
    if act.outcome is None:
        why = "it was begun, and the process ended before its end was recorded; the session's ledger has what is known"
        if step.name == "RUN_TASK":
            why += "; RUN_TASK of the task tells more; a person decides the rest: deedbook tasks decide"
        return {**describe_failure(fault("OUTCOME_UNKNOWN", why)), **get_signals(act.signals)}
    result: dict[str, Any] = {"status": act.outcome["status"], **get_signals(act.signals)}
    if "task" in act.outcome:
        result["task"] = act.outcome["task"]
    if act.run:
        result["run"] = act.run
    if "code" in act.outcome:
        result["error"] = {"code": act.outcome["code"], "message": act.outcome.get("message", "")}
    elif act.has_result:
        result["result"] = act.result
    elif step.name in ("RUN_TASK", "GET_TASK") and (task := sources.find_task(act.outcome["task"])) is not None:
        result["result"] = task.result if step.name == "RUN_TASK" else task.as_json()
    if result["status"] == "needs_human":
        result |= list_approvals(act.requests.open)
    return result


def _is_read_from_run(act: ActionRecord) -> bool:
    """Return whether the run has a later state, or a reply, that the record of its action lacks."""
    return act.outcome is None or act.outcome["status"] in (OK, "needs_human")


def _rebuild_run(run: str, sources: OutcomeSources) -> dict[str, Any]:
    try:
        return describe_prompt_run(sources.read_run(run))
    except DeedbookError as problem:
        return describe_failure(problem.error)
