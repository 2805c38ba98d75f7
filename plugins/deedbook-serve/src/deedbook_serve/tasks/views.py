"""A task as it is shown: its input, its state, and the outcome of its last run."""

from typing import Any

import attrs

from deedbook.contract import Json, Object
from deedbook.format.errors import Ok

from .book import State, TaskBook, TaskRecord
from .run_results import conclude_recorded, read_approvals


@attrs.frozen(kw_only=True)
class Task:
    """One task: a use of *ability* with *args*, bound to the *charter* of that digest, created by *principal*.

    *result* is the result of its run, and for an opened view the reply of a flow that keeps a context. *code* and
    *message* say why its last run has none. *approval* is the request that a person has to answer first, *decided* a
    person's decision about a run whose outcome was lost: ``happened`` or ``did_not``. *direct*: it is the record of a
    direct run. Times are those of the ledger.
    """

    id: str
    ability: str
    state: State
    principal: str
    on_behalf_of: str | None
    charter: str
    created: str
    latest: str
    runs: int
    args: Json = None
    key: str | None = None
    direct: bool = False
    result: Json = None
    code: str | None = None
    message: str | None = None
    approval: str | None = None
    decided: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the task as JSON; missing values are ``null``."""
        return attrs.asdict(self)


def build_view(book: TaskBook, task: TaskRecord, *, opened: bool = False) -> Task:
    """Return *task* in its current state; *opened*: with sealed arguments and results opened.

    Raises `TaskError` if a requested sealed value was erased.
    """
    bound = _read_payload(book, task, "task.created", "task.updated", opened=opened)
    mark = task.last("task.started", "task.ended", "task.decided", "task.updated")
    ended = _read_payload(book, task, "task.ended", opened=opened) if mark and mark.type == "task.ended" else {}
    result = ended.get("result")
    if opened and "code" not in ended:
        outcome = conclude_recorded(book.state, ended.get("call"), result)
        result = outcome.value if isinstance(outcome, Ok) else result
    decision = book.read_event(mark).payload if mark and mark.type == "task.decided" else {}
    state = book.get_state(task)
    return Task(
        id=task.id, ability=task.ability, state=state, principal=task.owner[0], on_behalf_of=task.owner[1],
        charter=task.charter, created=task.created, latest=task.latest, runs=task.runs, args=bound["args"],
        key=task.key, direct=task.direct, result=result, code=ended.get("code"),
        message=ended.get("message"), approval=_find_approval(book, task, state, ended, opened=opened),
        decided=decision.get("answer"),
    )  # fmt: skip


def _find_approval(book: TaskBook, task: TaskRecord, state: State, ended: Object, *, opened: bool) -> str | None:
    """Return the request of a task that waits; for an opened view also that of a flow that ended NEEDS_HUMAN."""
    if state == "waiting":
        return task.approvals[-1] if task.approvals else None
    if opened and state == "failed" and ended.get("code") == "NEEDS_HUMAN":
        return read_approvals(book.state, ended.get("call")).get("approval")
    return None


def _read_payload(book: TaskBook, task: TaskRecord, *types: str, opened: bool) -> Object:
    if opened:
        return book.read_payload(task, *types)
    mark = task.last(*types)
    return book.read_event(mark).payload if mark else {}
