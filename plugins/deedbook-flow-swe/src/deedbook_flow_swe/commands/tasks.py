"""Add tasks, run them, show where they stand, and go on with one: add, run, status, resume."""

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, json_option, principal_option, profile_option, wait_option
from deedbook.cli.output import as_json, message, report_error, say, table
from deedbook.format.errors import BindingError, fault
from deedbook.format.terminal import plain

from .lookup import find_definition, find_workspace

if TYPE_CHECKING:
    from deedbook import contract
    from deedbook.kernel import Kernel
    from deedbook.sessions.session import Session
    from deedbook_flow_swe.running.board import TaskRow
    from deedbook_flow_swe.running.runner import PipelineRunner, TaskEnding
    from deedbook_flow_swe.running.task_queue import QueuedTask, TaskQueue

_MOST: Final = 20_000
_TAG: Final = re.compile("[a-z0-9][a-z0-9._-]{0,63}")
_ID: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DECISIONS: Final = ("go-on", "rework", "stop")
pipeline_option = click.option("--pipeline", metavar="ID", help="The pipeline, if there are several.")


@click.command("add", short_help="Add a task to the queue.")
@click.argument("title", metavar="TITLE")
@click.option("--file", "file", type=click.Path(dir_okay=False), help="The request, as a text file.")
@click.option("--tags", default="", help="Tags, separated by commas.")
@click.option("--project", default=None, help="The repository, a folder of repos/.")
@click.option("--priority", type=click.Choice(["low", "normal", "high", "urgent"]), default="normal")
@click.option(
    "--id", "identity", default=None, metavar="ID", help="The id of the task, if it shall have a certain one."
)
@click.option("--generated", is_flag=True, help="Mark the task as made up: it is no evidence for rewards.")
@pipeline_option
@profile_option
@principal_option
@json_option
@click.pass_obj
def add(  # noqa: PLR0913
    options: GlobalOptions,
    title: str,
    file: str | None,
    tags: str,
    project: str | None,
    priority: str,
    identity: str | None,
    pipeline: str | None,
    profile: str | None,
    principal: str | None,
    *,
    generated: bool,
) -> int:
    """Add a task with this TITLE to the queue; `deedbook swe run` takes it. Nothing runs."""
    names = [each.strip() for each in tags.split(",") if each.strip()]
    for option, given in (("--tags", names), ("--id", [identity] if identity else [])):
        _check_names(option, given)
    members: dict[str, Any] = {
        "title": title,
        "request": title if file is None else _read_request(Path(file)),
        "tags": names,
        "priority": priority,
        **({"project": project} if project else {}),
        **({"id": identity} if identity else {}),
        **({"generated": True} if generated else {}),
    }
    with _open_queue(options, pipeline, profile, principal) as (_, _, queue):
        task = queue.add(members)
        queue.read_page()
    if options.json:
        as_json({"schema_version": "v1", "task": task})
    else:
        say(plain(task))
    return 0


@click.command("run", short_help="Run tasks of the queue.")
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--all", "everything", is_flag=True, help="Run all tasks that wait.")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="How many tasks run at once.")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86400),
    metavar="SECONDS",
    help="With --all: look for tasks so often, until SIGTERM or SIGINT.",
)
@pipeline_option
@profile_option
@principal_option
@json_option
@click.pass_obj
def run(  # noqa: PLR0913
    options: GlobalOptions,
    task: str | None,
    jobs: int,
    every: float | None,
    pipeline: str | None,
    profile: str | None,
    principal: str | None,
    *,
    everything: bool,
) -> int:
    """Take the first task of the queue, TASK, or --all, through its phases; each in a session of its own.

    New lines of shared/queue.md become tasks first. Tasks that were interrupted, and tasks that a person has answered,
    go on first; then the most urgent, then the oldest. A task that waits for a person is suspended; exit status 3.

    With --every, the command takes new and answered tasks until it is stopped. It then waits for the tasks
    that are running; a second signal interrupts them, and the next run goes on with them.
    """
    if task is not None and everything:
        raise click.UsageError("name a task, or use --all")
    if every is not None and (options.json or not everything):
        raise click.UsageError("--every needs --all" if not everything else "--every prints lines; leave --json out")
    from deedbook_flow_swe.running.runner import PipelineRunner

    with _open_queue(options, pipeline, profile, principal) as (kernel, session, queue):
        runner = PipelineRunner(
            kernel=kernel,
            definition=_definition(options, pipeline, profile),
            principal=session.principal,
            queue=queue,
            listen=_tell if not options.json else lambda _task, _event: None,
        )
        if every is not None:
            return _serve(options, runner, jobs, every)
        for each in queue.read_page():
            message(plain(f"{each} comes from shared/queue.md"))
        endings = runner.run(_choose(queue, task, everything=everything), jobs)
        queue.read_page()
        asked = [row.task_id for row in queue.list_begun() if row.approval]
    return _report(options, endings, asked)


@click.command("resume", short_help="Go on with a task that stopped.")
@click.argument("task", metavar="TASK")
@click.option("--decision", type=click.Choice(_DECISIONS), help="Answer the question that it waits with, signed.")
@click.option("--note", default="", help="With --decision: a note, which the agent of the phase gets.")
@click.option(
    "--as", "approver", metavar="NAME", help="With --decision: as this approver.", shell_complete=completing.approvers
)
@pipeline_option
@wait_option
@json_option
@click.pass_obj
def resume(
    options: GlobalOptions,
    task: str,
    decision: str | None,
    note: str,
    approver: str | None,
    pipeline: str | None,
    wait: float,
) -> int:
    """Go on with TASK where it stood; nothing that is recorded is done again."""
    if decision is None and (note or approver):
        raise click.UsageError("--note and --as belong to --decision")
    from deedbook_flow_swe.running.runner import PipelineRunner

    result = None if decision is None else {"decision": decision, "note": note}
    with _open_queue(options, pipeline, None, None) as (kernel, session, queue):
        row = _find_row(queue.list_begun(), task)
        runner = PipelineRunner(
            kernel=kernel,
            definition=_definition(options, pipeline, None),
            principal=session.principal,
            queue=queue,
            listen=_tell if not options.json else lambda _task, _event: None,
        )
        ending = runner.go_on(row, result, approver=approver, wait=wait)
        queue.read_page()
        asked = [each.task_id for each in queue.list_begun() if each.task_id == task and each.approval]
    return _report(options, [ending], asked)


@click.command("status", short_help="Show where tasks stand.")
@click.argument("task", metavar="[TASK]", required=False)
@pipeline_option
@profile_option
@principal_option
@json_option
@click.pass_obj
def status(
    options: GlobalOptions, task: str | None, pipeline: str | None, profile: str | None, principal: str | None
) -> int:
    """Show where the tasks stand, or what happened to TASK so far; from the ledger, not from the renderings."""
    with _open_queue(options, pipeline, profile, principal) as (_, _, queue):
        rows = queue.list_rows()
    if task is not None:
        rows = [_find_row(rows, task)]
    if options.json:
        as_json({"schema_version": "v1", "tasks": [row.as_json() for row in rows]})
        return 0
    if not rows:
        say("no tasks; add one with: deedbook swe add TITLE")
    table((row.task_id, row.state, f"{row.rollbacks} rollbacks", row.session or "-", plain(row.title)) for row in rows)
    for row in rows if task is not None else ():
        for line in row.history:
            say(plain(f"  {line}"))
        if row.approval:
            say(plain(f"  waits for an answer: deedbook approvals show {row.approval}"))
    return 0


# --- parts ------------------------------------------------------------------------------------------------------------


@contextmanager
def _open_queue(
    options: GlobalOptions, pipeline: str | None, profile: str | None, principal: str | None
) -> "Iterator[tuple[Kernel, Session, TaskQueue]]":
    """Give the kernel, a session of the command, and the queue of the pipeline."""
    from deedbook.cli.common import announce
    from deedbook.cli.execution import session_starter
    from deedbook.kernel import open_kernel
    from deedbook_flow_swe.running.task_queue import TaskQueue

    definition = _definition(options, pipeline, profile)
    with open_kernel(options.workspace, profile=profile) as kernel:
        announce(kernel.active_charter)
        with session_starter("open", principal, 0.0)(kernel) as session:
            queue = TaskQueue(kernel, session, definition)
            try:
                yield kernel, session, queue
            finally:
                queue.close()


def _definition(options: GlobalOptions, pipeline: str | None, profile: str | None) -> Any:
    return find_definition(find_workspace(options, profile), pipeline)


def _check_names(option: str, names: Sequence[str]) -> None:
    """Raise `BindingError` for a tag or an id that no task can have."""
    form = _TAG if option == "--tags" else _ID
    letters = "lower-case letters" if option == "--tags" else "letters"
    for name in names:
        if not form.fullmatch(name):
            why = f"{option}: {name!r} is not accepted; use at most 64 {letters}, digits, `.`, `_` and `-`"
            raise BindingError(fault("USAGE", f"{why}, and begin with a letter or a digit"))


def _read_request(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as problem:
        raise BindingError(fault("USAGE", f"--file: {file} cannot be read: {problem.strerror}")) from None
    except ValueError:
        raise BindingError(fault("USAGE", f"--file: {file} is no text in UTF-8")) from None
    if not text.strip() or len(text) > _MOST:
        why = "is empty" if not text.strip() else f"has {len(text)} characters; a request has at most {_MOST}"
        raise BindingError(fault("USAGE", f"--file: {file} {why}"))
    return text


def _choose(queue: "TaskQueue", task: str | None, *, everything: bool) -> "list[QueuedTask | TaskRow]":
    """Return the tasks to run."""
    from deedbook.format.schema import suggest

    known = queue.list_ready()
    if task is not None:
        if task not in known:
            listed = ", ".join(known) or "none"
            raise BindingError(
                fault("USAGE", f"no task {task!r} waits to be run{suggest(task, known)}; tasks that wait: {listed}")
            )
        return [known[task]]
    found = list(known.values())
    return found if everything else found[:1]


def _serve(options: GlobalOptions, runner: "PipelineRunner", jobs: int, every: float) -> int:
    """Run tasks until a signal to stop; return the exit status."""
    from deedbook_flow_swe.running.service import QueueService

    queue = runner.queue
    with _stop_on_signals() as stopped:
        message(plain(f"looks for tasks every {every:g} s"))
        service = QueueService(runner=runner, jobs=jobs, report=lambda text: message(plain(text)))
        while not stopped.is_set():
            endings = service.run_next()
            if endings:
                ran = {each.task_id for each in endings}
                _report(
                    options, endings, [row.task_id for row in queue.list_begun() if row.approval and row.task_id in ran]
                )
            else:
                stopped.wait(every)
    message("stopped; no task is running")
    return 0


@contextmanager
def _stop_on_signals() -> "Iterator[Event]":
    """Give an event that SIGTERM and SIGINT set; the second signal does what it does without this."""
    stopped = Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number in numbers:
            signal.signal(number, handlers[number])

    def stop(_number: int, _frame: object) -> None:
        restore()
        stopped.set()

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()


def _find_row(rows: "list[TaskRow]", task: str) -> "TaskRow":
    from deedbook.format.schema import suggest

    found = {row.task_id: row for row in rows}
    if task not in found:
        why = f"there is no task {task!r}{suggest(task, found)}; tasks: {', '.join(found) or 'none'}"
        raise BindingError(fault("USAGE", why))
    return found[task]


def _tell(task: str, event: "contract.Event") -> None:
    """Show a person how a task goes on."""
    from deedbook_flow_swe.events import EVENTS

    if event.type in EVENTS and event.type.rpartition(".")[2] in _SHOWN:
        from deedbook.format.event_text import show

        said: Any = event.payload
        what = " ".join(show(str(said[key])) for key in _SHOWN[event.type.rpartition(".")[2]] if said.get(key))
        message(plain(f"· {task}: {event.type.rpartition('.')[2].replace('_', ' ')} {what}"))


_SHOWN: Final = {
    "phase_started": ("phase", "iteration", "unit"),
    "phase_blocked": ("phase", "by", "rule", "reason"),
    "rolled_back": ("from_phase", "to_phase"),
    "escalated": ("phase", "reason"),
    "phase_completed": ("phase", "unit", "gate"),
    "denied": ("agent", "ability", "reason"),
}


def _report(options: GlobalOptions, endings: "list[TaskEnding]", asked: Sequence[str] = ()) -> int:
    """Print how runs ended, and name the tasks that have *asked* a person; return the exit status."""
    from deedbook_flow_swe.running.runner import WAITS

    if options.json:
        rows = [
            {"task": each.task_id, "session": each.session, "state": each.state, "text": each.text} for each in endings
        ]
        as_json({"schema_version": "v1", "tasks": rows})
    elif not endings:
        say("no task of the queue waits to be run")
    for each in () if options.json else endings:
        line = plain(f"{each.task_id}  {each.state}  session {each.session or '-'}  {each.text}")
        say(line) if each.state == "COMPLETED" else report_error(line)
    for task in () if options.json else asked:
        message(plain(f"{task} waits for a person; answer with: deedbook swe resume {task} --decision …"))
    states = {each.state for each in endings}
    if states <= {"COMPLETED"}:
        return 0
    return 3 if states <= {"COMPLETED", WAITS} else 1
