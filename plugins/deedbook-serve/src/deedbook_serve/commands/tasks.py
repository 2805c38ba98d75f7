"""List the tasks; make, run, change, delete or decide one."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import (
    Asked,
    Suggesting,
    args_option,
    given_arguments,
    json_option,
    pairs_argument,
    principal_option,
    profile_option,
    read_arguments,
    wait_option,
)
from deedbook.cli.output import answer, as_json, data_command, message, say, table

if TYPE_CHECKING:
    from deedbook.call.session import Session
    from deedbook.cli.acting import Ending
    from deedbook.format.errors import Result
    from deedbook.kernel import Kernel
    from deedbook.workspace.declarations import Workspace
    from deedbook_serve.tasks.runner import Created, Tasks
    from deedbook_serve.tasks.views import Task

SECTION: Final = "Do"


def _task_names(workspace: "Workspace") -> Iterable[str]:
    from deedbook_serve.tasks.book import Book

    with Book.of(workspace.state) as book:
        return ["last", *(task.id for task in book)]


_complete_tasks = completing.completer(_task_names)
task_argument = click.argument("task", shell_complete=_complete_tasks)
note_option = click.option("--note", default="", metavar="TEXT", help="Say how you know; it is recorded.")


@data_command
@click.group("tasks", cls=Suggesting, invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """List the tasks; make, run, change, delete or decide one."""
    return int(ctx.invoke(listed, every=False)) if ctx.invoked_subcommand is None else 0


@command.command("list", short_help="List the tasks of the workspace, and how each stands.")
@click.option("--all", "every", is_flag=True, help="Also what was deleted, and the records of direct runs.")
@json_option
@click.pass_obj
def listed(asked: Asked, *, every: bool) -> int:
    """List the tasks of the workspace, whoever made them, and how each stands."""
    from deedbook_serve.tasks.views import view

    with _book(asked) as book:
        found = [view(book, task) for task in book] if book else []
    rows = [each for each in found if every or each.state == "unknown" or not (each.direct or each.state == "deleted")]
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
def show(asked: Asked, task: str) -> int:
    """Show TASK: its input, what it is bound to, and all that happened to it, as its page tells it."""
    from deedbook_serve.tasks.pages import rendered
    from deedbook_serve.tasks.views import view

    with _needed(asked) as book:
        found = book.find(task)
        shown, text = view(book, found), rendered(book, found)
    if asked.json:
        as_json({"schema_version": "v1", "task": shown.as_json()})
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
    asked: Asked, ability: str, pairs: tuple[str, ...], text: str | None, key: str | None, profile: str | None,
    principal: str | None,
) -> int:  # fmt: skip
    """Make a task for one use of ABILITY, if the hooks of PreAbilityCreate let it; print its id."""
    args = given_arguments(text, pairs)
    return _act(asked, lambda tasks: _made(tasks.create(ability, args, idempotency_key=key)), profile, principal)


@command.command("update", short_help="Bind TASK to the charter in force, with the same or other arguments.")
@task_argument
@click.option("--args", "text", metavar="JSON", help="Other arguments; without it they stay.")
@profile_option
@principal_option
@json_option
@click.pass_obj
def update(asked: Asked, task: str, text: str | None, profile: str | None, principal: str | None) -> int:
    """Bind TASK to the charter in force, with other arguments or the same; its hooks are asked again."""
    args = None if text is None else read_arguments(text)
    return _act(asked, lambda tasks: _made(tasks.update(_id(tasks, task), args)), profile, principal)


@command.command("run", short_help="Run TASK through the door, once, and print its result.")
@task_argument
@profile_option
@principal_option
@wait_option
@json_option
@click.pass_obj
def run(asked: Asked, task: str, profile: str | None, principal: str | None, wait: float) -> int:
    """Run TASK through the door and print its result; one that has succeeded gives its result again.

    Without --profile it runs under the profile that it was made or updated with.
    """
    if profile is None:
        with _needed(asked) as book:
            found = book.find(task)
            said = book.event(found.last("task.created", "task.updated")).payload["profile"]
        profile = said if isinstance(said, str) else None
    return _act(asked, lambda tasks: _ran(tasks, _id(tasks, task)), profile, principal, wait)


@command.command("delete")
@task_argument
@principal_option
@json_option
@click.pass_obj
def delete(asked: Asked, task: str, principal: str | None) -> int:
    """Delete TASK: it is never run again. What is recorded of it stays."""
    return _act(asked, lambda tasks: _shown(tasks.delete(_id(tasks, task))), None, principal)


@command.command("decide")
@task_argument
@click.option("--happened", "said", flag_value="happened", default=None, help="The run had its effect.")
@click.option("--did-not", "said", flag_value="did-not", help="It had none; the task may be run again.")
@note_option
@principal_option
@json_option
@click.pass_obj
def decide(asked: Asked, task: str, said: str | None, note: str, principal: str | None) -> int:
    """Say whether the run of a TASK whose outcome was lost had its effect."""
    if said is None:
        raise click.UsageError("say which: --happened or --did-not", click.get_current_context())
    happened = said == "happened"
    return _act(
        asked, lambda tasks: _shown(tasks.decide(_id(tasks, task), happened=happened, note=note)), None, principal
    )


@command.command("render")
@click.argument("task", required=False, shell_complete=_complete_tasks)
@json_option
@click.pass_obj
def render(asked: Asked, task: str | None) -> int:
    """Write the pages of all tasks anew from the ledger, or that of TASK."""
    from deedbook_serve.tasks.pages import place_of, write

    written = []
    with _book(asked) if task is None else _needed(asked) as book:
        for each in [book.find(task)] if task else book or ():
            write(book, each)
            if not each.direct and each.state != "deleted":
                written.append(str(book.state / place_of(each)))
    if asked.json:
        as_json({"schema_version": "v1", "pages": written})
    else:
        for place in written:
            say(place)
    return 0


# --- doing something --------------------------------------------------------------------------------------------------


def _act(
    asked: Asked, work: "Callable[[Tasks], Ending]", profile: str | None, principal: str | None, wait: float = 0.0
) -> int:
    from deedbook.cli.acting import act, beginning
    from deedbook_serve.tasks.runner import Tasks

    begin, held = beginning("open", principal, wait), []

    def begun(kernel: "Kernel") -> "Session":
        session = begin(kernel)
        held.append(Tasks(kernel, session))
        return session

    try:
        return act(asked, begun, lambda _: work(held[0]), profile=profile)
    finally:
        for tasks in held:
            tasks.close()


def _id(tasks: "Tasks", name: str) -> str:
    return tasks.book.find(name).id


def _made(result: "Result[Created]") -> "Ending":
    from deedbook.cli.acting import FINE, Ending
    from deedbook.format import event_text as story
    from deedbook.format.errors import Err

    if isinstance(result, Err):
        return Ending.failed(result.error)
    made = result.value
    if made.unavailable is not None or made.task is None:
        assert made.unavailable
        return Ending.failed(made.unavailable)
    for name, said in made.signals.items():
        for each in said:
            message(f"{name} of {story.show(each['hook'])}: {story.show(each['value'])}")
    if not made.fresh:
        message("made before with this idempotency key")
    return Ending(FINE, made.task.id, members={"task": made.task.as_json()})


def _ran(tasks: "Tasks", task: str) -> "Ending":
    import attrs

    from deedbook.cli.acting import given
    from deedbook.format.errors import Err, Ok

    result = tasks.run(task)
    ending = given(result if isinstance(result, Err) else Ok(result.value.result))
    if not isinstance(result, Err) and result.value.recorded:
        message("it ran before; this is what came of it")
    found = tasks.get(task)
    more: dict[str, Any] = {} if isinstance(found, Err) else {"task": found.value.as_json()}
    return attrs.evolve(ending, members={**ending.members, **more})


def _shown(result: "Result[Task]") -> "Ending":
    from deedbook.cli.acting import FINE, Ending
    from deedbook.format.errors import Err

    if isinstance(result, Err):
        return Ending.failed(result.error)
    return Ending(FINE, f"{result.value.id} {result.value.state}", members={"task": result.value.as_json()})


# --- reading ----------------------------------------------------------------------------------------------------------


def _book(asked: Asked) -> Any:
    """Open the tasks of the workspace; nothing where nothing was ever recorded."""
    from contextlib import nullcontext

    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.tasks.book import Book

    try:
        return Book.of(read_workspace(asked.workspace).state)
    except FileNotFoundError:
        return nullcontext()


def _needed(asked: Asked) -> Any:
    from deedbook.format.errors import TaskError, fault
    from deedbook_serve.tasks.book import Book

    book = _book(asked)
    if not isinstance(book, Book):
        raise TaskError(fault("TASK_NOT_FOUND", "no task was ever made in this workspace"))
    return book
