"""What became of runs that nobody ended: asked of the record, of who performed an approved call, of the handler."""

import attrs

from deedbook.call.handlers import reconcile
from deedbook.call.queue import Waiting
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, TaskError, fault
from deedbook.format.files import Folder
from deedbook.format.reader import is_open
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import DURABLE, BoundAbility

from .aftermath import Aftermath, of_approval, of_run, performed_for
from .book import Book, Kept


class Settlements:
    """Finds out what was lost, under *bindings*, for who works in *session* (its id)."""

    def __init__(self, bindings: Bindings, session: str, book: Book) -> None:
        self._bindings, self._session, self._book = bindings, session, book

    def find(self, task: Kept) -> Aftermath | None:
        """Return what can be told of the last run of *task* beyond what is recorded of it; ``None``: nothing.

        Raises `TaskError` (``TASK_RUNNING``) while somebody performs what a person has approved of it.
        """
        bound = self._bindings.find(task.ability) if task.state in ("running", "unknown", "waiting") else None
        found = self._found(task, self._as_made(task, bound)) if bound else None
        return None if found and found.state == "unknown" and task.state != "waiting" else found

    def _as_made(self, task: Kept, bound: BoundAbility) -> BoundAbility:
        """Return the ability with at least the effects that it had when *task* was made: YAML may say less now."""
        effects = self._book.event(task.marks[0]).payload["effects"]
        return attrs.evolve(bound, durable=True) if effects in DURABLE else bound

    def _found(self, task: Kept, bound: BoundAbility) -> Aftermath | None:
        if task.state == "waiting":
            return self._performed_elsewhere(task, bound)
        unended = task.session == self._session and task.id not in self._book.active
        if self._book.standing(task) != "unknown" and not (task.state == "running" and unended):
            return None
        found = (
            of_run(self._book.state, task.session, task.span, bound)
            if task.state == "running"
            else Aftermath("unknown", call=self._book.event(task.marks[-1]).payload.get("call"))
        )
        return found if found.state != "unknown" else self._reconciled(task, bound, found)

    def _reconciled(self, task: Kept, bound: BoundAbility, found: Aftermath) -> Aftermath:
        """Ask the handler what became of a call whose outcome was lost, if it is the one that made it."""
        if not isinstance(found.call, str) or task.charter != self._bindings.charter.digest:
            return found
        args = self._book.opened(task, "task.created", "task.updated")["args"]
        told = reconcile(bound, canonical.decode(canonical.encode(args)), found.call)
        if told is None:
            return found
        if bound.observers:
            why = "the handler knows the result; it is withheld, since hooks look at results where they come about"
            return Aftermath("succeeded", found.call, code="GATE_DENIED", message=why, source="reconcile")
        return Aftermath("succeeded", found.call, known=True, result=told.value, source="reconcile")

    def _performed_elsewhere(self, task: Kept, bound: BoundAbility) -> Aftermath | None:
        """Return what became of the call of a waiting task that was approved and then performed by itself."""
        with Waiting.of(self._book.state) as waiting:
            uses = {approval: getattr(waiting.get(approval), "used", None) for approval in task.approvals}
        used = {approval: str(use.payload["session"]) for approval, use in uses.items() if use is not None}
        runs = self._book.runs(task) if used else ()
        for approval, session in used.items():
            try:
                if not performed_for(self._book.state, session, approval, runs):
                    continue
            except (DeedbookError, OSError):
                return Aftermath("unknown")
            with Folder.at(self._book.state) as state:
                if session != self._session and is_open(state, session):
                    raise TaskError(fault("TASK_RUNNING", f"session {session} performs task {task.id} now"))
            return of_approval(self._book.state, session, approval, bound)
        return None
