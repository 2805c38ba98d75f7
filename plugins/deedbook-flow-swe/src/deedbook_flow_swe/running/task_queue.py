"""The queue of a pipeline: Deedbook's own tasks, and the lines that people write into ``shared/queue.md``.

A task waits as a use of the pipeline's ability that has not begun. When its session has begun, the task leaves the
queue, and the session tells where it stands.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from deedbook.contract import Event, Failed
from deedbook.format.errors import Err, TaskError, fault
from deedbook.format.events import new_id
from deedbook.kernel import Kernel
from deedbook.sessions.session import Session
from deedbook_flow_swe.definition import PREFIX, Definition
from deedbook_flow_swe.events import TASK_STARTED
from deedbook_serve.tasks.runner import Tasks
from deedbook_serve.tasks.views import Task

from .board import ANSWERED, QUEUED, TaskBoard, TaskRow
from .files import digest_text
from .intake import DEFAULT_PROJECT, build_task, name_task
from .renderings import MOST_ENDED
from .state import ENDS
from .values import read_object

PAGE: Final = "shared/queue.md"
_HEAD: Final = """\
# Queue

Add a task with a line such as `- Raise the limit #http @shop`, or with `deedbook swe add`. `deedbook swe run` takes it.
All other lines are written by the runner from the ledger.
"""
_KNOWN: Final = re.compile(r"- `([A-Za-z0-9][A-Za-z0-9._-]{0,63})` [A-Z_]+:(?: |$)")
_TAG: Final = re.compile(r"(?:^|\s)#([a-z0-9][a-z0-9._-]{0,63})(?=\s|$)")
_PROJECT: Final = re.compile(r"(?:^|\s)@([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?=\s|$)")
_TITLE: Final = 200
_PRIORITIES: Final = ("urgent", "high", "normal", "low")


@attrs.frozen(kw_only=True)
class QueuedTask:
    """A task that waits: its id, the *entry* in Deedbook's tasks, and its members."""

    id: str
    entry: str
    task: Mapping[str, Any]

    @property
    def rank(self) -> int:
        """Its place among the priorities, from the most urgent; a task without one is a normal one."""
        priority = self.task.get("priority")
        return _PRIORITIES.index(priority if priority in _PRIORITIES else "normal")


class TaskQueue:
    """The queue of *definition* in *kernel*, for the principal of *session*; close it after use."""

    def __init__(self, kernel: Kernel, session: Session, definition: Definition) -> None:
        self._kernel, self._session, self._definition = kernel, session, definition
        self._tasks = Tasks(kernel, session)
        self._board = TaskBoard(Path(kernel.site.state))
        self._ability = f"{PREFIX}{definition.id}"
        self._page: tuple[int, int] | None = None

    def close(self) -> None:
        """Release the book of tasks and the board."""
        self._tasks.close()
        self._board.close()

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, members: Mapping[str, Any], *, key: str | None = None) -> str:
        """Add a task with these *members* of ``swe_task_v1``, and return its id; raises `DeedbookError`."""
        who, now = self._session.principal.id, self._session.ledger.now()
        self._check_new(members, known=key is None)
        identity = str(members.get("id") or name_task(now, new_id()))
        try:
            build_task(members, self._definition, identity=identity, now=now, who=who)
        except Failed as problem:
            raise TaskError(fault(problem.code, str(problem))) from None
        task = {"submitted_by": who, **members, "id": identity}
        result = self._tasks.create(self._ability, {"prompt": encode_task(task)}, idempotency_key=key)
        if isinstance(result, Err):
            raise TaskError(result.error)
        created = result.value
        if created.task is None:
            assert created.unavailable is not None
            raise TaskError(created.unavailable)
        return str(_read_task(created.task)["id"])

    def _check_new(self, members: Mapping[str, Any], *, known: bool) -> None:
        """Raise `TaskError` for a task that could not be begun; with *known*, also for an id that is taken."""
        if not str(members.get("title", "")).strip():
            raise TaskError(fault("SCHEMA_VIOLATION", "a task needs a title: a few words that say what is to be done"))
        if known and members.get("id") in {row.task_id for row in self.list_rows()}:
            raise TaskError(fault("USAGE", f"there is a task {members['id']} already; choose another id"))
        project = str(members.get("project", DEFAULT_PROJECT))
        folder = self._definition.path(f"repos/{project}")
        if "git" in self._definition.abilities and not (self._kernel.site.root / folder / ".git").exists():
            why = f"{folder} is no git repository; name the project of the task, or clone it there"
            found = sorted(each.parent.name for each in (self._kernel.site.root / folder).parent.glob("*/.git"))
            raise TaskError(fault("USAGE", f"{why}; projects: {', '.join(found) or 'none'}"))

    # --- reading ------------------------------------------------------------------------------------------------------

    def list_waiting(self) -> list[QueuedTask]:
        """Return the tasks of this principal that have not begun: the most urgent first, then the oldest."""
        return self._list_waiting(self.list_begun())

    def _list_waiting(self, rows: Sequence[TaskRow]) -> list[QueuedTask]:
        """Return the tasks that wait, without those of *rows*, which have begun."""
        begun = {row.task_id for row in rows}
        book = self._tasks.book
        book.refresh()
        entries = [each.id for each in book if each.ability == self._ability and each.state == "ready"]
        found = [task for each in entries if (task := self._read_entry(each)) is not None and task.id not in begun]
        return sorted(found, key=lambda each: each.rank)

    def _read_entry(self, entry: str) -> QueuedTask | None:
        """Return a task of the book; ``None`` for one of another principal, and for one that cannot be read."""
        found = self._tasks.get(entry)
        task = {} if isinstance(found, Err) else _read_task(found.value)
        return QueuedTask(id=str(task["id"]), entry=entry, task=task) if task else None

    def list_ready(self) -> dict[str, QueuedTask | TaskRow]:
        """Return the tasks that can run, by id: interrupted ones first, then answered ones, then those that wait."""
        begun = self.list_begun()
        stopped = [row for row in begun if row.session_state == "interrupted"]
        answered = [row for row in begun if row.state == ANSWERED]
        ready: dict[str, QueuedTask | TaskRow] = {row.task_id: row for row in (*stopped, *answered)}
        return ready | {each.id: each for each in self._list_waiting(begun)}

    def list_begun(self) -> list[TaskRow]:
        """Return the tasks of the pipeline whose sessions have begun."""
        return [row for row in self._board.list_rows() if row.pipeline == self._definition.id]

    def list_rows(self) -> list[TaskRow]:
        """Return all tasks: those that have begun, then those that wait."""
        begun = self.list_begun()
        waiting = (
            TaskRow(task_id=each.id, title=str(each.task.get("title", "")), pipeline=self._definition.id, state=QUEUED)
            for each in self._list_waiting(begun)
        )
        return [*begun, *waiting]

    def leave(self, entry: str) -> None:
        """Take a task whose session has begun out of the queue; a task that has left stays so."""
        self._tasks.delete(entry)

    # --- the page -----------------------------------------------------------------------------------------------------

    def read_page(self) -> list[str]:
        """Add the new lines of the page as tasks, write the page again, and return the ids of the new tasks.

        Every other edit of the page is lost: it is written from the ledger.
        """
        try:
            return self._read_page()
        finally:
            self._page = self._stat_page()

    def has_new_page(self) -> bool:
        """Return whether the page may have changed since `read_page`; nothing is recorded."""
        return self._stat_page() != self._page

    def _stat_page(self) -> tuple[int, int]:
        try:
            found = (self._kernel.site.root / self._definition.path(PAGE)).stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size

    def _read_page(self) -> list[str]:
        path = self._definition.path(PAGE)
        abilities = self._definition.abilities
        found: Any = self._call(abilities["read"], {"paths": [], "optional": [path]})
        file = found["files"][0] if found["files"] else {"text": "", "digest": ""}
        added = [self._add_line(line, file["digest"], at) for at, line in _new_lines(file["text"])]
        text = render_page(self.list_rows())
        if text != file["text"]:
            args = {"paths": [path], "texts": [text], "expected": [file["digest"]]}
            self._call(abilities["write"], args)
        return added

    def _add_line(self, line: str, digest: str, position: int) -> str:
        """Add the task of a line; after a crash, the same line of the same page is the same task."""
        unique = digest_text(f"{digest}:{position}:{line}")
        members = {**parse_line(line), "id": f"task-{unique[:12]}", "source": "queue"}
        return self.add(members, key=f"swe-queue-{unique}")

    def _call(self, ability: str, args: Mapping[str, Any]) -> Any:
        result = self._session.call(ability, dict(args))
        if isinstance(result, Err):
            raise TaskError(result.error)
        return result.value


class Departure:
    """A listener on a session's ledger: takes the task out of the queue when its session has begun it."""

    def __init__(self, queue: TaskQueue, entry: str) -> None:
        self._queue, self._entry = queue, entry
        self.begun = False

    def __call__(self, event: Event) -> None:
        """Note whether *event* begins the task."""
        self.begun = self.begun or event.type == TASK_STARTED

    def settle(self) -> None:
        """Take the task out, if it was begun."""
        if self.begun:
            self._queue.leave(self._entry)


def encode_task(task: Mapping[str, Any]) -> str:
    """Return a task as the prompt of the session that runs it."""
    return json.dumps(dict(task), ensure_ascii=False, sort_keys=True)


def parse_line(line: str) -> dict[str, Any]:
    """Return the members of the task in a line of the page: title, request, tags and project."""
    text = line.removeprefix("-").strip()
    tags = list(dict.fromkeys(_TAG.findall(text)))
    projects = _PROJECT.findall(text)
    title = " ".join(_PROJECT.sub(" ", _TAG.sub(" ", text)).split())
    members: dict[str, Any] = {"title": title[:_TITLE], "request": text, "tags": tags}
    return {**members, "project": projects[-1]} if projects else members


def render_page(rows: Sequence[TaskRow]) -> str:
    """Return the page with a line for each task; of those that have ended, only for the last `MOST_ENDED`."""
    ended = [row.task_id for row in rows if row.state in ENDS]
    left = frozenset(ended[:-MOST_ENDED])
    shown = (row for row in rows if row.task_id not in left)
    lines = (f"- `{row.task_id}` {row.state}: {' '.join(row.title.split())}\n" for row in shown)
    return f"{_HEAD}\n{''.join(lines)}"


def _new_lines(text: str) -> list[tuple[int, str]]:
    lines = [(at, line.strip()) for at, line in enumerate(text.splitlines())]
    return [(at, line) for at, line in lines if line.startswith("- ") and line[2:].strip() and not _KNOWN.match(line)]


def _read_task(task: Task) -> dict[str, Any]:
    args: Any = task.args
    found = read_object(str(args.get("prompt", ""))) if isinstance(args, Mapping) else {}
    return found if "id" in found else {}
