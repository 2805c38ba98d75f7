"""Runs tasks of the queue, several at once, each in a session of its own; and goes on with those that stopped."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs

from deedbook.approvals.results import sign_as
from deedbook.continuation.resume import open_requests
from deedbook.contract import Event, Principal
from deedbook.format.errors import ApprovalError, DeedbookError, Err, Result, fault
from deedbook.format.reader import read
from deedbook.format.waits import get_result
from deedbook.kernel import Kernel
from deedbook.sessions.session import Session
from deedbook_flow_swe.definition import PREFIX, Definition

from .board import TaskRow
from .task_queue import Departure, QueuedTask, TaskQueue, encode_task

WAITS: Final = "NEEDS_HUMAN"


@attrs.frozen(kw_only=True)
class TaskEnding:
    """How the run of a task ended for now: its *state* (that of the run, or an error's code) and a *text*."""

    task_id: str
    session: str
    state: str
    text: str


@attrs.frozen(kw_only=True)
class PipelineRunner:
    """Runs tasks of *definition* in *kernel* for *principal*. *listen* gets the events of every session."""

    kernel: Kernel
    definition: Definition
    principal: Principal
    queue: TaskQueue
    listen: Callable[[str, Event], None] = lambda _task, _event: None

    def run(self, tasks: "Sequence[QueuedTask | TaskRow]", jobs: int) -> list[TaskEnding]:
        """Run *tasks*, at most *jobs* at once, and return how each ended, in their order."""
        with ThreadPoolExecutor(max(1, jobs), "deedbook-swe") as pool:
            return [get_result(each) for each in [pool.submit(self._run_one, task) for task in tasks]]

    def go_on(self, row: TaskRow, result: Any = None, *, approver: str | None = None, wait: float = 0.0) -> TaskEnding:
        """Go on with the session of a task; *result* is what an *approver* decides about the question that waits.

        Raises `DeedbookError` if the task waits for something else.
        """
        assert row.session is not None
        given = None
        if result is not None:
            question = self._find_question(row.task_id, row.session)
            given = sign_as(self.kernel.bindings.charter.document["principals"], result, approver, question)
        session = self.kernel.resume(row.session, result=given, wait=wait)
        return self._finish(row.task_id, session, session.go_on)

    def _find_question(self, task: str, session: str) -> str:
        """Return the request with the question to a person at which *task* waits; a decision is no other result."""
        waiting = [event.payload for event in open_requests(list(read(self.kernel.site.state / "sessions" / session)))]
        asking = self.definition.abilities.get("ask_human")
        found = next((each for each in waiting if each.get("name") == asking), None)
        if found is None:
            others = [f"deedbook approvals show {each['approval']} ({each['name']})" for each in waiting]
            more = f"; it waits for another answer: {', '.join(others)}" if others else ""
            raise ApprovalError(fault("RESUME_REFUSED", f"{task} has asked no person for a decision{more}"))
        return str(found["approval"])

    def _run_one(self, task: "QueuedTask | TaskRow") -> TaskEnding:
        identity = task.id if isinstance(task, QueuedTask) else task.task_id
        try:
            return self.go_on(task) if isinstance(task, TaskRow) else self._begin(task)
        except DeedbookError as problem:
            session = task.session or "" if isinstance(task, TaskRow) else ""
            return TaskEnding(task_id=identity, session=session, state=problem.error.code, text=str(problem.error))

    def _begin(self, task: QueuedTask) -> TaskEnding:
        session = self.kernel.session("run", principal=self.principal)
        departure = Departure(self.queue, task.entry)
        session.ledger.subscribe(departure)
        try:
            return self._finish(
                task.id, session, lambda: session.run(encode_task(task.task), f"{PREFIX}{self.definition.id}")
            )
        finally:
            departure.settle()

    def _finish(self, task: str, session: Session, work: "Callable[[], Result[Any]]") -> TaskEnding:
        session.ledger.subscribe(lambda event: self.listen(task, event))
        with session:
            found = work()
            if isinstance(found, Err):
                state, text = found.error.code, str(found.error)
            else:
                state, text = found.value.state, found.value.text
            session.end(ok=state == "COMPLETED", reason=state)
        return TaskEnding(task_id=task, session=session.id, state=state, text=text)
