"""A task as it is shown: what it is, how it stands, and what its last run came to."""

from typing import Any

import attrs

from deedbook.contract import Json, Object

from .book import Book, Kept, State


@attrs.frozen(kw_only=True)
class Task:
    """One task: a use of *ability* with *args*, bound to the *charter* of that digest, made by *principal*.

    *result* is what its run gave, *code* and *message* why its last run gave none; *approval* is the request that a
    person has to answer first, *decided* what a person has said of a run whose outcome was lost: ``happened`` or
    ``did_not``. *direct*: it is the record of a direct run. Times are those of the ledger.
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
        """Return it as JSON; what there is none of is ``null``."""
        return attrs.asdict(self)


def view(book: Book, task: Kept, *, opened: bool = False) -> Task:
    """Return *task* as it stands now; *opened*: with what is sealed in its arguments and its result.

    Raises `TaskError` where a sealed value is gone that was asked for.
    """
    bound = _payload(book, task, "task.created", "task.updated", opened=opened)
    mark = task.last("task.started", "task.ended", "task.decided", "task.updated")
    ended = _payload(book, task, "task.ended", opened=opened) if mark and mark.type == "task.ended" else {}
    said = book.event(mark).payload if mark and mark.type == "task.decided" else {}
    state = book.standing(task)
    return Task(
        id=task.id, ability=task.ability, state=state, principal=task.owner[0], on_behalf_of=task.owner[1],
        charter=task.charter, created=task.created, latest=task.latest, runs=task.runs, args=bound["args"],
        key=task.key, direct=task.direct, result=ended.get("result"), code=ended.get("code"),
        message=ended.get("message"), approval=task.approvals[-1] if state == "waiting" and task.approvals else None,
        decided=said.get("answer"),
    )  # fmt: skip


def _payload(book: Book, task: Kept, *types: str, opened: bool) -> Object:
    if opened:
        return book.opened(task, *types)
    mark = task.last(*types)
    return book.event(mark).payload if mark else {}
