"""List the tasks; make, run, change, delete or decide one."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import (
    GlobalOptions,
    SuggestingGroup,
    args_option,
    json_option,
    pairs_argument,
    parse_arguments,
    principal_option,
    profile_option,
    read_arguments,
    wait_option,
)
from deedbook.cli.output import answer, as_json, data_command, message, say, table

if TYPE_CHECKING:
    from deedbook.cli.execution import Ending
    from deedbook.format.errors import Result
    from deedbook.kernel import Kernel
    from deedbook.sessions.session import Session
    from deedbook.workspace.declarations import Workspace
    from deedbook_serve.tasks.book import TaskBook
    from deedbook_serve.tasks.runner import Created, Tasks
    from deedbook_serve.tasks.views import Task

SECTION: Final = "Do"


def _task_names(workspace: "Workspace") -> Iterable[str]:
    from deedbook_serve.tasks.book import TaskBook

    with TaskBook.open(workspace.state) as book:
        return ["last", *(task.id for task in book)]


_complete_tasks = completing.completer(_task_names)
task_argument = click.argument("task", shell_complete=_complete_tasks)
note_option = click.option("--note", default="", metavar="TEXT", help="Say how you know; it is recorded.")


@data_command
@click.group("tasks", cls=SuggestingGroup, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """List the tasks; make, run, change, delete or decide one."""
    return int(ctx.invoke(list_tasks, every=False)) if ctx.invoked_subcommand is None else 0


@command.command("list", short_help="List the tasks of the workspace, and how each stands.")
@click.option("--all", "every", is_flag=True, help="Also what was deleted, and the records of direct runs.")
@json_option
@click.pass_obj
def list_tasks(asked: GlobalOptions, *, every: bool) -> int:
    """List the tasks of the workspace, of all principals, and their states."""
    from deedbook_serve.tasks.views import build_view

    with _open_book(asked) as book:
        views = [build_view(book, task) for task in book] if book else []
    rows = [each for each in views if every or each.state == "unknown" or not (each.direct or each.state == "deleted")]
    if asked.json:
        as_json({"schema_version": "v1", "tasks": [each.as_json() for each in rows]})
    elif rows:
        table((each.id, each.state, each.created, each.ability, each.principal, each.message or "") for each in rows)
    else:
        say("no tasks")
    return 0


@command.command("show", short_help="Show TASK: its input, and all that happened to it.")
@task_argument
@json_option
@click.pass_obj
def show(asked: GlobalOptions, task: str) -> int:
    """Show TASK: its input, what it is bound to, and all that happened to it, as its page tells it."""
    from deedbook_serve.tasks.pages import render
    from deedbook_serve.tasks.views import build_view

    with _require_book(asked) as book:
        found = book.find(task)
        task_view, text = build_view(book, found), render(book, found)
    if asked.json:
        as_json({"schema_version": "v1", "task": task_view.as_json()})
    else:
        answer(text.rstrip("\n"))
    return 0


@command.command("create", short_help="Make a task for one use of ABILITY, and print its id.")
@click.argument("ability", shell_complete=completing.abilities)
@pairs_argument
@args_option
@click.option("--key", metavar="KEY", help="An idempotency key: asked again with it, the same task comes back.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def create(
    asked: GlobalOptions, ability: str, pairs: tuple[str, ...], text: str | None, key: str | None, profile: str | None,
    principal: str | None,
) -> int:  # fmt: skip
    """Make a task for one use of ABILITY, if the hooks of PreAbilityCreate let it; print its id."""
    args = parse_arguments(text, pairs)
    return _act(
        asked, lambda tasks: _describe_created(tasks.create(ability, args, idempotency_key=key)), profile, principal
    )


@command.command("update", short_help="Bind TASK to the charter in force, with the same or other arguments.")
@task_argument
@click.option("--args", "text", metavar="JSON", help="Other arguments; without it they stay.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def update(asked: GlobalOptions, task: str, text: str | None, profile: str | None, principal: str | None) -> int:
    """Bind TASK to the charter in force, with other arguments or the same; its hooks are asked again."""
    args = None if text is None else read_arguments(text)
    return _act(asked, lambda tasks: _describe_created(tasks.update(_find_id(tasks, task), args)), profile, principal)


@command.command("run", short_help="Run TASK through the door, once, and print its result.")
@task_argument
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def run(asked: GlobalOptions, task: str, profile: str | None, principal: str | None, wait: float) -> int:
    """Run TASK through the door and print its result; one that has succeeded gives its result again.

    Without --profile it runs under the profile that it was made or updated with.
    """
    if profile is None:
        with _require_book(asked) as book:
            found = book.find(task)
            position = found.last("task.created", "task.updated")
            assert position
            recorded = book.read_event(position).payload["profile"]
        profile = recorded if isinstance(recorded, str) else None
    return _act(asked, lambda tasks: _run_task(tasks, _find_id(tasks, task)), profile, principal, wait)


@command.command("delete")
@task_argument
@principal_option
@json_option
@click.pass_obj
def delete(asked: GlobalOptions, task: str, principal: str | None) -> int:
    """Delete TASK: it is never run again. What is recorded of it stays."""
    return _act(asked, lambda tasks: _describe_task(tasks.delete(_find_id(tasks, task))), None, principal)


@command.command("decide")
@task_argument
@click.option("--happened", "said", flag_value="happened", default=None, help="The run had its effect.")
@click.option("--did-not", "said", flag_value="did-not", help="It had none; the task may be run again.")
@note_option
@principal_option
@json_option
@click.pass_obj
def decide(asked: GlobalOptions, task: str, said: str | None, note: str, principal: str | None) -> int:
    """Say whether the run of a TASK whose outcome was lost had its effect."""
    if said is None:
        raise click.UsageError("say which: --happened or --did-not", click.get_current_context())
    happened = said == "happened"
    return _act(
        asked,
        lambda tasks: _describe_task(tasks.decide(_find_id(tasks, task), happened=happened, note=note)),
        None,
        principal,
    )


@command.command("render")
@click.argument("task", required=False, shell_complete=_complete_tasks)
@json_option
@click.pass_obj
def render(asked: GlobalOptions, task: str | None) -> int:
    """Write the pages of all tasks anew from the ledger, or that of TASK."""
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.tasks.pages import get_path, write

    read_workspace(asked.workspace)  # what others may change is not written
    written = []
    with _open_book(asked) if task is None else _require_book(asked) as book:
        for each in [book.find(task)] if task else book or ():
            write(book, each)
            if not each.direct and each.state != "deleted":
                written.append(str(book.state / get_path(each)))
    if asked.json:
        as_json({"schema_version": "v1", "pages": written})
    else:
        for place in written:
            say(place)
    return 0


# --- actions --------------------------------------------------------------------------------------------------------


def _act(
    asked: GlobalOptions,
    work: "Callable[[Tasks], Ending]",
    profile: str | None,
    principal: str | None,
    wait: float = 0.0,
) -> int:
    from deedbook.cli.execution import execute, session_starter
    from deedbook_serve.tasks.runner import Tasks

    begin, opened = session_starter("open", principal, wait), []

    def begin_with_tasks(kernel: "Kernel") -> "Session":
        session = begin(kernel)
        opened.append(Tasks(kernel, session))
        return session

    try:
        return execute(asked, begin_with_tasks, lambda _: work(opened[0]), profile=profile)
    finally:
        for tasks in opened:
            tasks.close()


def _find_id(tasks: "Tasks", name: str) -> str:
    return tasks.book.find(name).id


def _describe_created(result: "Result[Created]") -> "Ending":
    from deedbook.cli.execution import FINE, Ending
    from deedbook.format import event_text as story
    from deedbook.format.errors import Err

    if isinstance(result, Err):
        return Ending.failed(result.error)
    created = result.value
    if created.unavailable is not None or created.task is None:
        assert created.unavailable
        return Ending.failed(created.unavailable)
    for name, given in created.signals.items():
        for each in given:
            message(f"{name} of {story.show(each['hook'])}: {story.show(each['value'])}")
    if not created.fresh:
        message("made before with this idempotency key")
    return Ending(FINE, created.task.id, members={"task": created.task.as_json()})


def _run_task(tasks: "Tasks", task: str) -> "Ending":
    import attrs

    from deedbook.cli.execution import call_ending
    from deedbook.format.errors import Err, Ok

    result = tasks.run(task)
    ending = call_ending(result if isinstance(result, Err) else Ok(result.value.result))
    if not isinstance(result, Err) and result.value.recorded:
        message("it ran before; this is what came of it")
    found = tasks.get(task)
    more: dict[str, Any] = {} if isinstance(found, Err) else {"task": found.value.as_json()}
    return attrs.evolve(ending, members={**ending.members, **more})


def _describe_task(result: "Result[Task]") -> "Ending":
    from deedbook.cli.execution import FINE, Ending
    from deedbook.format.errors import Err

    if isinstance(result, Err):
        return Ending.failed(result.error)
    return Ending(FINE, f"{result.value.id} {result.value.state}", members={"task": result.value.as_json()})


# --- reading --------------------------------------------------------------------------------------------------------


def _open_book(asked: GlobalOptions) -> Any:
    """Open the tasks of the workspace; a null context if the workspace has no ledger yet."""
    from contextlib import nullcontext

    from deedbook.cli.ledgers import read_recorded
    from deedbook_serve.tasks.book import TaskBook

    try:
        return TaskBook.open(read_recorded(asked.workspace).state)
    except FileNotFoundError:
        return nullcontext()


def _require_book(asked: GlobalOptions) -> "TaskBook":
    from deedbook.format.errors import TaskError, fault
    from deedbook_serve.tasks.book import TaskBook

    book = _open_book(asked)
    if not isinstance(book, TaskBook):
        raise TaskError(fault("TASK_NOT_FOUND", "no task was ever made in this workspace"))
    return book
