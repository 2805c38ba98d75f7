"""The Tool Runner: abilities used as tasks, which are created first and run later, and direct runs.

Every effect goes through the session's door. The workspace ledger is the truth about tasks; of several concurrent
changes of a task one succeeds, and the others get an error.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import attrs

from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, Err, Ok, Result, TaskError, fault, recordable
from deedbook.format.events import new_id
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.maintenance.identity import Identity
from deedbook.sessions.session import Session

from .book import KEY, RUNNABLE, TASK_ID, TaskBook, TaskRecord
from .preflights import Preflights, Unavailable
from .run_recovery import RunRecovery
from .run_results import conclude, conclude_recorded, read_approvals
from .task_log import TaskLog, get_state_folder
from .task_runs import DECIDE, RunResult, TaskRuns
from .views import Task, build_view

__all__ = ["Created", "RunResult", "Task", "TaskSpec", "Tasks"]

T = TypeVar("T")


class TaskHost(Protocol):
    """The part of a kernel that tasks need: the workspace ledger, and the process's identity."""

    @property
    def ledger(self) -> WorkspaceLedger:
        """The workspace ledger."""

    @property
    def identity(self) -> Identity:
        """The identity of the process in the workspace ledger."""


@attrs.frozen
class TaskSpec:
    """A task that does not exist yet: one use of *ability* with *args*; see `Tasks.create`."""

    ability: str
    args: Json = attrs.field(factory=dict)
    idempotency_key: str | None = None


@attrs.frozen(kw_only=True)
class Created:
    """The outcome of creating a task: the *task*, or why it is *unavailable*, and the signals of hooks.

    *signals* holds the ``ability_preflight`` of each hook that gave one. *fresh* is false if the task was created
    before with the same idempotency key.
    """

    task: Task | None = None
    unavailable: DomainError | None = None
    signals: Object = attrs.field(factory=dict)
    fresh: bool = True

    @property
    def id(self) -> str:
        """The id of the task; an unavailable one has none."""
        return self.task.id if self.task else ""


class _KeyTaken(Exception):  # noqa: N818 - it names what happened
    """Another process was first with the same idempotency key."""


class Tasks:
    """The tasks that the principal of *session* creates and runs, in the workspace of *kernel*; safe in threads.

    *book* may be shared by all users of one workspace; without one, it is opened here and closed by `close`. Every
    method returns an `Err` for a refusal: ``TASK_NOT_FOUND``, ``TASK_NOT_YOURS`` (another principal's), the door's
    refusals (``told`` holds the signals of hooks and the pending approval), and the other task errors.
    """

    def __init__(self, kernel: TaskHost, session: Session, *, book: TaskBook | None = None) -> None:
        self._workspace_ledger, self._session = kernel.ledger, session
        self._owns_book = book is None
        self.book = book or TaskBook.open(get_state_folder(kernel.ledger))
        self._log = TaskLog(kernel.ledger, session.ledger, session.caller, self.book)
        self._preflights = Preflights(session, self._log)
        self._runs = TaskRuns(session, self._log, kernel.identity.process_id)
        self._recovery = RunRecovery(session.bindings, session.id, self.book)
        self._owner = (session.principal.id, session.principal.on_behalf_of)

    # --- the life of a task ------------------------------------------------------------------------------------------

    def create(self, ability: str, args: Json, *, idempotency_key: str | None = None) -> Result[Created]:
        """Create a task for one use of *ability* with *args* if hooks of ``PreAbilityCreate`` allow it; nothing runs.

        An unavailable task has no id and no folder. If this principal has used the *idempotency_key* before, the same
        task is returned; with other input the error is ``TASK_KEY_REUSED``.
        """
        return self._create_safely(lambda: self._create(ability, args, idempotency_key))

    def run(self, task: str | TaskSpec) -> Result[RunResult]:
        """Run a task through the door, under its charter; a task that has succeeded does not run again.

        The task of a `TaskSpec` is created first; if it is unavailable, that is the error, and nothing runs.
        ``TASK_CHARTER_CHANGED`` if another charter is in force, until the task is updated. ``TASK_UNKNOWN``: the task
        ran, and neither the record nor its handler knows the outcome; a person has to `decide`.
        """
        if not isinstance(task, TaskSpec):
            return self._safely(lambda: self._run(task), changes=True)
        created = self.create(task.ability, task.args, idempotency_key=task.idempotency_key)
        if isinstance(created, Err):
            return created
        return Err(created.value.unavailable) if created.value.unavailable else self.run(created.value.id)

    def get(self, task: str) -> Result[Task]:
        """Return a task of this principal in its current state."""
        return self._safely(lambda: Ok(build_view(self.book, self._find(task), opened=True)))

    def list_all(self) -> list[Task]:
        """Return all tasks of this principal that are not deleted, in the order of creation."""
        self.book.refresh()
        return [
            build_view(self.book, task) for task in self.book if task.owner == self._owner and task.state != "deleted"
        ]

    def update(self, task: str, args: Json = None) -> Result[Created]:
        """Bind a task to other *args* (``None``: the same) and to the charter in force; its hooks are asked again."""
        return self._create_safely(lambda: self._update(task, args))

    def delete(self, task: str) -> Result[Task]:
        """Delete a task, which then never runs again; a task with an unknown outcome has to be decided first."""
        return self._safely(lambda: self._delete(task), changes=True)

    def decide(self, task: str, *, happened: bool, note: str = "") -> Result[Task]:
        """Decide as a person whether the run of a task whose outcome was lost had its effect.

        If it had, the task has succeeded, without a result; if not, it may run again. Only its principal, the principal
        that it acts for, and approvers may decide, never an agent.
        """
        return self._safely(lambda: self._decide(task, "happened" if happened else "did_not", note), changes=True)

    def direct_run(self, ability: str, args: Json, *, idempotency_key: str | None = None) -> Result[RunResult]:
        """Use *ability* through the door at once, without a task; scope, schema, hooks and record apply.

        With an *idempotency_key* the effect happens once: a repetition returns the same outcome, also a failure. A
        refused use never began and may be tried again; a use that began and was lost is ``TASK_UNKNOWN``.
        """
        return self._safely(lambda: self._run_direct(ability, args, idempotency_key), changes=True)

    def close(self) -> None:
        """Close the book, if it was opened here."""
        if self._owns_book:
            self.book.close()

    # --- creating ----------------------------------------------------------------------------------------------------

    def _create(self, ability: str, args: Json, key: str | None) -> Result[Created]:
        raw = self._preflights.admit(ability, args)
        found = self._find_by_key(key, ability, raw, direct=False)
        if found is not None:
            return Ok(Created(task=build_view(self.book, found), fresh=False))
        bound, signals = self._preflights.check(ability, raw)
        identity, payload = f"t-{new_id()}", self._preflights.build_payload(bound, raw, key, direct=False)
        try:
            self._log.create(identity, payload, self._session.cause, self._build_key_check(key))
        except _KeyTaken:
            return self._create(ability, args, key)
        return Ok(Created(task=build_view(self.book, self._get(identity)), signals=signals))

    # --- changing ----------------------------------------------------------------------------------------------------

    def _update(self, name: str, args: Json) -> Result[Created]:
        task = self._recover(self._find_task(name))
        self._require_runnable(task, "updated")
        raw = self._preflights.admit(task.ability, args) if args is not None else self._read_args(task)
        bound, signals = self._preflights.check(task.ability, raw, task.id)
        self._log.note("task.updated", task, self._preflights.build_binding(bound, raw), self._session.cause)
        self._log.withdraw(task, f"task {task.id} was updated")
        return Ok(Created(task=build_view(self.book, self._get(task.id)), signals=signals))

    def _delete(self, name: str) -> Result[Task]:
        task = self._recover(self._find_task(name))
        if task.state != "succeeded":
            self._require_runnable(task, "deleted")
        self._log.note("task.deleted", task, {}, self._session.cause)
        self._log.withdraw(task, f"task {task.id} was deleted")
        return Ok(build_view(self.book, self._get(task.id)))

    def _decide(self, name: str, answer: str, note: str) -> Result[Task]:
        task, who = self._find_any(name), self._session.principal
        if self._session.caller.actor != "user" or not (who.id in task.owner or "approver" in who.roles):
            why = f"task {task.id} belongs to {task.owner[0]}; who decides is that person, or an approver"
            raise TaskError(fault("TASK_NOT_YOURS", why))
        if self.book.get_state(task) != "unknown":
            why = f"task {task.id} is {self.book.get_state(task)}; only one whose outcome is unknown is decided"
            raise TaskError(fault("TASK_DECIDED", why))
        payload = {"answer": answer, "by": who.id, "note": recordable(note)}
        self._log.note("task.decided", task, payload, self._session.cause)
        return Ok(build_view(self.book, self._get(task.id)))

    # --- running -----------------------------------------------------------------------------------------------------

    def _run(self, name: str) -> Result[RunResult]:
        task = self._recover(self._find_task(name))
        if task.state == "succeeded":
            return self._get_earlier_result(task)
        self._require_runnable(task, "run")
        if task.charter != self._charter_digest:
            why = f"task {task.id} is bound to charter {task.charter[:12]}, and another is in force; update the task"
            raise TaskError(fault("TASK_CHARTER_CHANGED", why))
        return self._attempt(task)

    def _attempt(self, task: TaskRecord) -> Result[RunResult]:
        """Record the start of a run durably, and make the call."""
        args = canonical.decode(self._read_args(task))
        payload = {"run": task.runs + 1, "charter": self._charter_digest}
        span = self._log.note("task.started", task, payload, self._session.cause)
        return self._runs.perform(self._get(task.id), task.ability, args, span)

    def _get_earlier_result(self, task: TaskRecord) -> Result[RunResult]:
        """Return the outcome of an earlier run."""
        payload = self.book.read_payload(task, "task.ended") if task.last("task.ended") else {}
        position = task.last("task.ended", "task.decided")
        if position and position.type == "task.decided":
            return Ok(RunResult(result=None, task=task.id, recorded=True))
        if "code" in payload:
            more = read_approvals(self.book.state, payload.get("call")) if payload["code"] == "NEEDS_HUMAN" else {}
            return Err(fault(payload["code"], payload.get("message", "")), more)
        outcome = conclude_recorded(self.book.state, payload.get("call"), payload.get("result"))
        return outcome if isinstance(outcome, Err) else Ok(RunResult(result=outcome.value, task=task.id, recorded=True))

    def _run_direct(self, ability: str, args: Json, key: str | None) -> Result[RunResult]:
        if key is None:
            return self._run_unrecorded(ability, args)
        raw = self._preflights.admit(ability, args)
        found = self._find_by_key(key, ability, raw, direct=True)
        if found is not None:
            return self._repeat(self._recover(found))
        bound = self._session.bindings.find(ability)
        if bound is None:
            return self._run_unrecorded(ability, args)
        identity = f"t-{new_id()}"
        payload = self._preflights.build_payload(bound, raw, key, direct=True)
        try:
            span = self._log.create(identity, payload, self._session.cause, self._build_key_check(key), started=True)
        except _KeyTaken:
            return self._run_direct(ability, args, key)
        return self._runs.perform(self._get(identity), ability, canonical.decode(raw), span)

    def _run_unrecorded(self, ability: str, args: Json) -> Result[RunResult]:
        session = self._session
        before = session.door.before(session.caller, ability, args, session.cause)
        if isinstance(before, Err):
            return before
        signals = before.value.signals
        result = session.door.perform(before.value)
        result = conclude(session, before.value.span, result)
        if isinstance(result, Err):
            return Err(result.error, {**result.details, "signals": signals})
        return Ok(RunResult(result=result.value, signals=signals))

    def _repeat(self, task: TaskRecord) -> Result[RunResult]:
        if task.state in ("succeeded", "failed"):
            return self._get_earlier_result(task)
        self._require_runnable(task, "run")
        return self._attempt(task)

    def _recover(self, task: TaskRecord) -> TaskRecord:
        """Return *task* after recording the outcome of a lost run, if it can be found; else it stays unknown."""
        outcome = self._recovery.find(task)
        if outcome is None:
            return task
        self._runs.record_outcome(task, outcome)
        return self._get(task.id)

    # --- helpers -----------------------------------------------------------------------------------------------------

    @property
    def _charter_digest(self) -> str:
        return self._session.bindings.charter.digest

    def _read_args(self, task: TaskRecord) -> bytes:
        """Return the input that *task* is bound to."""
        return canonical.encode(self.book.read_payload(task, "task.created", "task.updated")["args"])

    def _get(self, identity: str) -> TaskRecord:
        task = self.book.get(identity)
        assert task
        return task

    def _find_any(self, name: str) -> TaskRecord:
        self.book.refresh()
        task = self.book.get(name) if isinstance(name, str) and TASK_ID.fullmatch(name) else None
        if task is None:
            raise TaskError(fault("TASK_NOT_FOUND", f"there is no task {recordable(str(name), 80)!r}"))
        return task

    def _find(self, name: str) -> TaskRecord:
        task = self._find_any(name)
        if task.owner != self._owner:
            raise TaskError(fault("TASK_NOT_YOURS", f"task {task.id} belongs to another principal"))
        return task

    def _find_task(self, name: str) -> TaskRecord:
        """Return a task of this principal that is not the record of a direct run."""
        task = self._find(name)
        if task.direct:
            raise TaskError(
                fault("TASK_ENDED", f"task {task.id} is the record of a direct run; ask for it again there")
            )
        return task

    def _find_by_key(self, key: str | None, ability: str, raw: bytes, *, direct: bool) -> TaskRecord | None:
        """Return the task that this principal created with *key*; raises `TaskError` if its input was different."""
        if key is None:
            return None
        if not isinstance(key, str) or not KEY.fullmatch(key):
            why = "an idempotency key has 1 to 128 printable ASCII characters, without spaces"
            raise TaskError(fault("TASK_KEY_INVALID", why))
        self.book.refresh()
        task = self.book.find_by_key(self._owner, key)
        if task is None:
            return None
        same = (
            task.ability == ability
            and task.direct is direct
            and self.book.read_first_args(task) == canonical.decode(raw)
        )
        if not same or task.state == "deleted":
            why = "was deleted" if same else "was made with other input"
            raise TaskError(fault("TASK_KEY_REUSED", f"the idempotency key names task {task.id}, which {why}"))
        return task

    def _build_key_check(self, key: str | None) -> Callable[[], None]:
        """Return a check, called under the ledger's lock, whether another process has used *key*."""

        def check() -> None:
            self.book.refresh()
            if key is not None and self.book.find_by_key(self._owner, key):
                raise _KeyTaken

        return check

    def _require_runnable(self, task: TaskRecord, verb: str) -> None:
        """Raise `TaskError` unless *task* is in a state in which it can run."""
        state = self.book.get_state(task)
        if state not in RUNNABLE:
            code, why = _NOT_RUNNABLE[state]
            raise TaskError(fault(code, f"task {task.id} {why.format(task.id)}; it is not {verb}"))

    def _create_safely(self, work: Callable[[], Result[Created]]) -> Result[Created]:
        try:
            return self._safely(work, changes=True)
        except Unavailable as refused:
            return Ok(Created(unavailable=refused.error, signals=refused.signals))

    def _safely(self, work: Callable[[], Result[T]], *, changes: bool = False) -> Result[T]:
        if changes and self._session.ended:
            return Err(fault("SESSION_ENDED", f"session {self._session.id} has ended"))
        try:
            return work()
        except DeedbookError as problem:
            return Err(problem.error)


_NOT_RUNNABLE: Final = {
    "running": ("TASK_RUNNING", "runs now"),
    "unknown": ("TASK_UNKNOWN", f"ran and its outcome was lost; a person says which: {DECIDE}"),
    "succeeded": ("TASK_ENDED", "has succeeded"),
    "deleted": ("TASK_ENDED", "was deleted"),
}
