"""The Tool Runner: abilities used as tasks, which are made first and run later, and abilities run directly.

Whatever it does to the world goes through the session's door. The workspace ledger is the truth about tasks; of all
who want to do something to one at the same time, one is first there, and the others are told.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import attrs

from deedbook.call.identity import Identity
from deedbook.call.session import Session
from deedbook.contract import Json, Object
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, DomainError, Err, Ok, Result, TaskError, fault, recordable
from deedbook.format.events import new_id
from deedbook.ledger.ledger import WorkspaceLedger

from .attempts import DECIDE, Attempts, Ran
from .book import KEY, RUNNABLE, TASK_ID, Book, Kept
from .preflights import Preflights, Unavailable
from .settlements import Settlements
from .task_log import TaskLog, state_of
from .views import Task, view

__all__ = ["Created", "Ran", "Task", "Tasks"]

T = TypeVar("T")


class Office(Protocol):
    """What of a kernel tasks need: the workspace's own ledger, and which process this is."""

    @property
    def ledger(self) -> WorkspaceLedger:
        """The workspace ledger."""

    @property
    def identity(self) -> Identity:
        """The process in the workspace ledger."""


@attrs.frozen(kw_only=True)
class Created:
    """What became of the making of a task: the *task*, or why it is *unavailable*, and what hooks said of it.

    *signals* holds the ``ability_preflight`` of each hook that gave one. *fresh* is false where the idempotency key had
    made the task before.
    """

    task: Task | None = None
    unavailable: DomainError | None = None
    signals: Object = attrs.field(factory=dict)
    fresh: bool = True


class _Made(Exception):  # noqa: N818 - it says what happened
    """Somebody else was first with the same idempotency key."""


class Tasks:
    """The tasks that the principal of *session* makes and runs, in the workspace of *kernel*; safe in threads.

    *book* may be shared by all who work in one workspace; without one it is opened here, and closed by `close`. Every
    method returns an `Err` for what is refused: ``TASK_NOT_FOUND``, ``TASK_NOT_YOURS`` (another principal's), what the
    door refuses (``told`` has the signals of hooks and the approval that is waited for), and the others of its kind.
    """

    def __init__(self, kernel: Office, session: Session, *, book: Book | None = None) -> None:
        self._own, self._session = kernel.ledger, session
        self._mine = book is None
        self.book = book or Book.of(state_of(kernel.ledger))
        self._clerk = TaskLog(kernel.ledger, session.ledger, session.caller, self.book)
        self._preflights = Preflights(session, self._clerk)
        self._attempts = Attempts(session, self._clerk, kernel.identity.process_id)
        self._settlements = Settlements(session.bindings, session.id, self.book)
        self._owner = (session.principal.id, session.principal.on_behalf_of)

    # --- the life of a task -------------------------------------------------------------------------------------------

    def create(self, ability: str, args: Json, *, idempotency_key: str | None = None) -> Result[Created]:
        """Make a task for one use of *ability* with *args*, if hooks of ``PreAbilityCreate`` let it; nothing is run.

        An unavailable one has no id and no folder. With an *idempotency_key* that this principal has used before the
        same task is returned; for other input it is ``TASK_KEY_REUSED``.
        """
        return self._available(lambda: self._create(ability, args, idempotency_key))

    def run(self, task: str) -> Result[Ran]:
        """Run a task through the door, under the charter that it is bound to; one that has succeeded is not run again.

        ``TASK_CHARTER_CHANGED`` until it is updated, where another is in force. ``TASK_UNKNOWN``: it ran, nobody
        knows what became of it, and neither the record nor its handler can tell; a person has to `decide`.
        """
        return self._safely(lambda: self._run(task), changes=True)

    def get(self, task: str) -> Result[Task]:
        """Return a task of this principal as it stands."""
        return self._safely(lambda: Ok(view(self.book, self._find(task), opened=True)))

    def every(self) -> list[Task]:
        """Return all tasks of this principal that are not deleted, in the order in which they were made."""
        self.book.refresh()
        return [view(self.book, task) for task in self.book if task.owner == self._owner and task.state != "deleted"]

    def update(self, task: str, args: Json = None) -> Result[Created]:
        """Bind a task to other *args* (``None``: the same) and to the charter in force; its hooks are asked again."""
        return self._available(lambda: self._update(task, args))

    def delete(self, task: str) -> Result[Task]:
        """Delete a task, which is never run again; one whose outcome is unknown has to be decided first."""
        return self._safely(lambda: self._delete(task), changes=True)

    def decide(self, task: str, *, happened: bool, note: str = "") -> Result[Task]:
        """Say as a person whether the run of a task whose outcome was lost had its effect.

        If so it has succeeded, without a result; if not it may be run again. That is for its principal, for whom that
        acts on behalf of, and for approvers; never for an agent.
        """
        return self._safely(lambda: self._decide(task, "happened" if happened else "did_not", note), changes=True)

    def direct_run(self, ability: str, args: Json, *, idempotency_key: str | None = None) -> Result[Ran]:
        """Use *ability* through the door at once, without the life of a task; scope, schema, hooks and record bind.

        With an *idempotency_key* it has its effect once: what came of it is returned again, also a failure. What was
        refused, and so never began, may be tried again; what was begun and lost is ``TASK_UNKNOWN``.
        """
        return self._safely(lambda: self._direct(ability, args, idempotency_key), changes=True)

    def close(self) -> None:
        """Let go of the book, if it was opened here."""
        if self._mine:
            self.book.close()

    # --- making -------------------------------------------------------------------------------------------------------

    def _create(self, ability: str, args: Json, key: str | None) -> Result[Created]:
        raw = self._preflights.input(ability, args)
        found = self._keyed(key, ability, raw, direct=False)
        if found is not None:
            return Ok(Created(task=view(self.book, found), fresh=False))
        bound, signals = self._preflights.ask(ability, raw)
        identity, said = f"t-{new_id()}", self._preflights.said(bound, raw, key, direct=False)
        try:
            self._clerk.create(identity, said, self._session.cause, self._first(key))
        except _Made:
            return self._create(ability, args, key)
        return Ok(Created(task=view(self.book, self._known(identity)), signals=signals))

    # --- changing -----------------------------------------------------------------------------------------------------

    def _update(self, name: str, args: Json) -> Result[Created]:
        task = self._settled(self._made(name))
        self._refuse(task, "updated")
        raw = self._preflights.input(task.ability, args) if args is not None else self._recorded(task)
        bound, signals = self._preflights.ask(task.ability, raw, task.id)
        self._clerk.note("task.updated", task, self._preflights.binding(bound, raw), self._session.cause)
        self._clerk.withdraw(task, f"task {task.id} was updated")
        return Ok(Created(task=view(self.book, self._known(task.id)), signals=signals))

    def _delete(self, name: str) -> Result[Task]:
        task = self._settled(self._made(name))
        if task.state != "succeeded":
            self._refuse(task, "deleted")
        self._clerk.note("task.deleted", task, {}, self._session.cause)
        self._clerk.withdraw(task, f"task {task.id} was deleted")
        return Ok(view(self.book, self._known(task.id)))

    def _decide(self, name: str, answer: str, note: str) -> Result[Task]:
        task, who = self._one(name), self._session.principal
        if self._session.caller.actor != "user" or not (who.id in task.owner or "approver" in who.roles):
            why = f"task {task.id} belongs to {task.owner[0]}; who decides is that person, or an approver"
            raise TaskError(fault("TASK_NOT_YOURS", why))
        if self.book.standing(task) != "unknown":
            why = f"task {task.id} is {self.book.standing(task)}; only one whose outcome is unknown is decided"
            raise TaskError(fault("TASK_DECIDED", why))
        said = {"answer": answer, "by": who.id, "note": recordable(note)}
        self._clerk.note("task.decided", task, said, self._session.cause)
        return Ok(view(self.book, self._known(task.id)))

    # --- running ------------------------------------------------------------------------------------------------------

    def _run(self, name: str) -> Result[Ran]:
        task = self._settled(self._made(name))
        if task.state == "succeeded":
            return self._again(task)
        self._refuse(task, "run")
        if task.charter != self._charter:
            why = f"task {task.id} is bound to charter {task.charter[:12]}, and another is in force; update the task"
            raise TaskError(fault("TASK_CHARTER_CHANGED", why))
        return self._attempt(task)

    def _attempt(self, task: Kept) -> Result[Ran]:
        """Begin a run durably, and make the call."""
        args = canonical.decode(self._recorded(task))
        said = {"run": task.runs + 1, "charter": self._charter}
        span = self._clerk.note("task.started", task, said, self._session.cause)
        return self._attempts.perform(self._known(task.id), task.ability, args, span)

    def _again(self, task: Kept) -> Result[Ran]:
        """Return what a run came to before."""
        said = self.book.opened(task, "task.ended") if task.last("task.ended") else {}
        decided = task.last("task.ended", "task.decided")
        if decided and decided.type == "task.decided":
            return Ok(Ran(result=None, task=task.id, recorded=True))
        if "code" in said:
            return Err(fault(said["code"], said.get("message", "")))
        return Ok(Ran(result=said.get("result"), task=task.id, recorded=True))

    def _direct(self, ability: str, args: Json, key: str | None) -> Result[Ran]:
        if key is None:
            return self._unnamed(ability, args)
        raw = self._preflights.input(ability, args)
        found = self._keyed(key, ability, raw, direct=True)
        if found is not None:
            return self._repeated(self._settled(found))
        bound = self._session.bindings.find(ability)
        if bound is None:
            return self._unnamed(ability, args)
        identity = f"t-{new_id()}"
        said = self._preflights.said(bound, raw, key, direct=True)
        try:
            span = self._clerk.create(identity, said, self._session.cause, self._first(key), begun=True)
        except _Made:
            return self._direct(ability, args, key)
        return self._attempts.perform(self._known(identity), ability, canonical.decode(raw), span)

    def _unnamed(self, ability: str, args: Json) -> Result[Ran]:
        session = self._session
        opened = session.door.before(session.caller, ability, args, session.cause)
        if isinstance(opened, Err):
            return opened
        signals = opened.value.signals
        result = session.door.perform(opened.value)
        if isinstance(result, Err):
            return Err(result.error, {"signals": signals})
        return Ok(Ran(result=result.value, signals=signals))

    def _repeated(self, task: Kept) -> Result[Ran]:
        if task.state in ("succeeded", "failed"):
            return self._again(task)
        self._refuse(task, "run")
        return self._attempt(task)

    def _settled(self, task: Kept) -> Kept:
        """Return *task* after recording what can be told of a run that was lost; what cannot be told stays unknown."""
        found = self._settlements.find(task)
        if found is None:
            return task
        self._attempts.settle(task, found)
        return self._known(task.id)

    # --- parts --------------------------------------------------------------------------------------------------------

    @property
    def _charter(self) -> str:
        return self._session.bindings.charter.digest

    def _recorded(self, task: Kept) -> bytes:
        """Return the input that *task* is bound to."""
        return canonical.encode(self.book.opened(task, "task.created", "task.updated")["args"])

    def _known(self, identity: str) -> Kept:
        task = self.book.get(identity)
        assert task
        return task

    def _one(self, name: str) -> Kept:
        self.book.refresh()
        task = self.book.get(name) if isinstance(name, str) and TASK_ID.fullmatch(name) else None
        if task is None:
            raise TaskError(fault("TASK_NOT_FOUND", f"there is no task {recordable(str(name), 80)!r}"))
        return task

    def _find(self, name: str) -> Kept:
        task = self._one(name)
        if task.owner != self._owner:
            raise TaskError(fault("TASK_NOT_YOURS", f"task {task.id} belongs to another principal"))
        return task

    def _made(self, name: str) -> Kept:
        """Return a task of this principal that has a life: no direct run, which is over when it returns."""
        task = self._find(name)
        if task.direct:
            raise TaskError(
                fault("TASK_ENDED", f"task {task.id} is the record of a direct run; ask for it again there")
            )
        return task

    def _keyed(self, key: str | None, ability: str, raw: bytes, *, direct: bool) -> Kept | None:
        """Return what this principal has made with *key*; raises `TaskError` if that was for something else."""
        if key is None:
            return None
        if not isinstance(key, str) or not KEY.fullmatch(key):
            why = "an idempotency key has 1 to 128 printable ASCII characters, without spaces"
            raise TaskError(fault("TASK_KEY_INVALID", why))
        self.book.refresh()
        task = self.book.keyed(self._owner, key)
        if task is None:
            return None
        same = task.ability == ability and task.direct is direct and self.book.made(task) == canonical.decode(raw)
        if not same or task.state == "deleted":
            why = "was deleted" if same else "was made with other input"
            raise TaskError(fault("TASK_KEY_REUSED", f"the idempotency key names task {task.id}, which {why}"))
        return task

    def _first(self, key: str | None) -> Callable[[], None]:
        """Return what looks, when nobody else can write, whether somebody was first with *key*."""

        def check() -> None:
            self.book.refresh()
            if key is not None and self.book.keyed(self._owner, key):
                raise _Made

        return check

    def _refuse(self, task: Kept, verb: str) -> None:
        """Raise `TaskError` unless *task* stands so that it may be run."""
        state = self.book.standing(task)
        if state not in RUNNABLE:
            code, why = _NOT[state]
            raise TaskError(fault(code, f"task {task.id} {why.format(task.id)}; it is not {verb}"))

    def _available(self, work: Callable[[], Result[Created]]) -> Result[Created]:
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


_NOT: Final = {
    "running": ("TASK_RUNNING", "runs now"),
    "unknown": ("TASK_UNKNOWN", f"ran and its outcome was lost; a person says which: {DECIDE}"),
    "succeeded": ("TASK_ENDED", "has succeeded"),
    "deleted": ("TASK_ENDED", "was deleted"),
}
