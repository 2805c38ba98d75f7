"""Goes on with the queue of a pipeline as long as a process lives: new tasks, answered ones, and interrupted ones."""

from collections.abc import Callable

import attrs

from deedbook.format.errors import DeedbookError

from .runner import WAITS, PipelineRunner, TaskEnding
from .task_queue import PAGE


@attrs.define(kw_only=True)
class QueueService:
    """Runs the tasks of a *runner*, at most *jobs* at once.

    *report* gets what the page of the queue adds, and what is wrong with it. A task that failed is not tried again by
    this service: its cause would be the same, and the record would grow.
    """

    runner: PipelineRunner
    jobs: int
    report: Callable[[str], None]
    _failed: set[str] = attrs.field(factory=set)

    def run_next(self) -> list[TaskEnding]:
        """Run the next tasks, and return how they ended; nothing if no task is ready. Nothing is recorded then."""
        queue = self.runner.queue
        if queue.has_new_page():
            self._read_page()
        ready = [task for name, task in queue.list_ready().items() if name not in self._failed]
        endings = self.runner.run(ready[: self.jobs], self.jobs)
        self._failed |= {each.task_id for each in endings if each.state not in ("COMPLETED", WAITS)}
        if endings:
            self._read_page()
        return endings

    def _read_page(self) -> None:
        try:
            for name in self.runner.queue.read_page():
                self.report(f"{name} comes from {PAGE}")
        except DeedbookError as problem:
            self.report(f"{PAGE}: {problem.error}")
