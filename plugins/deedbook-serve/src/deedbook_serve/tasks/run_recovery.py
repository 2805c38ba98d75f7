"""Finds the outcome of runs without a recorded end: in the record, in approved calls, and from the handler."""

import attrs

from deedbook.call.handlers import reconcile
from deedbook.call.queue import ApprovalQueue
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, TaskError, fault
from deedbook.format.files import Folder
from deedbook.format.reader import is_open
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import DURABLE, BoundAbility

from .book import TaskBook, TaskRecord
from .run_outcome import RunOutcome, read_approved_outcome, read_run_outcome, was_performed_for


class RunRecovery:
    """Finds lost outcomes, under *bindings*, for *session* (its id)."""

    def __init__(self, bindings: Bindings, session: str, book: TaskBook) -> None:
        self._bindings, self._session, self._book = bindings, session, book

    def find(self, task: TaskRecord) -> RunOutcome | None:
        """Return the outcome of the last run of *task* if more is known than its record says, else ``None``.

        Raises `TaskError` (``TASK_RUNNING``) while another session performs an approved call of it.
        """
        bound = self._bindings.find(task.ability) if task.state in ("running", "unknown", "waiting") else None
        outcome = self._find_outcome(task, self._with_first_effects(task, bound)) if bound else None
        return None if outcome and outcome.state == "unknown" and task.state != "waiting" else outcome

    def _with_first_effects(self, task: TaskRecord, bound: BoundAbility) -> BoundAbility:
        """Return the ability with at least the effects from the task's creation: YAML may declare fewer now."""
        effects = self._book.read_event(task.marks[0]).payload["effects"]
        return attrs.evolve(bound, durable=True) if effects in DURABLE else bound

    def _find_outcome(self, task: TaskRecord, bound: BoundAbility) -> RunOutcome | None:
        if task.state == "waiting":
            return self._find_approved_outcome(task, bound)
        is_open_run = task.session == self._session and task.id not in self._book.active
        if self._book.get_state(task) != "unknown" and not (task.state == "running" and is_open_run):
            return None
        outcome = (
            read_run_outcome(self._book.state, task.session, task.span, bound)
            if task.state == "running"
            else RunOutcome("unknown", call=self._book.read_event(task.marks[-1]).payload.get("call"))
        )
        return outcome if outcome.state != "unknown" else self._reconcile(task, bound, outcome)

    def _reconcile(self, task: TaskRecord, bound: BoundAbility, outcome: RunOutcome) -> RunOutcome:
        """Ask the handler for the outcome of a lost call, if it is the handler that made the call."""
        if not isinstance(outcome.call, str) or task.charter != self._bindings.charter.digest:
            return outcome
        args = self._book.read_payload(task, "task.created", "task.updated")["args"]
        reconciled = reconcile(bound, canonical.decode(canonical.encode(args)), outcome.call)
        if reconciled is None:
            return outcome
        if bound.observers:
            why = "the handler knows the result; it is withheld, since hooks look at results where they come about"
            return RunOutcome("succeeded", outcome.call, code="GATE_DENIED", message=why, source="reconcile")
        return RunOutcome("succeeded", outcome.call, known=True, result=reconciled.value, source="reconcile")

    def _find_approved_outcome(self, task: TaskRecord, bound: BoundAbility) -> RunOutcome | None:
        """Return the outcome of a waiting task's call that was approved and then performed elsewhere."""
        with ApprovalQueue.of(self._book.state) as waiting:
            uses = {approval: getattr(waiting.get(approval), "used", None) for approval in task.approvals}
        used = {approval: str(use.payload["session"]) for approval, use in uses.items() if use is not None}
        runs = self._book.list_runs(task) if used else ()
        for approval, session in used.items():
            try:
                if not was_performed_for(self._book.state, session, approval, runs):
                    continue
            except (DeedbookError, OSError):
                return RunOutcome("unknown")
            with Folder.at(self._book.state) as state:
                if session != self._session and is_open(state, session):
                    raise TaskError(fault("TASK_RUNNING", f"session {session} performs task {task.id} now"))
            return read_approved_outcome(self._book.state, session, approval, bound)
        return None
