"""Declare the tools of an agent of a framework."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deedbook.cli.common import GlobalOptions, display_path
from deedbook.cli.output import data_command, message, say

if TYPE_CHECKING:
    from deedbook_guard.adoption.programs import Program

SECTION: Final = "Begin"
_NAME_WORKSPACE: Final = (
    "if the program starts in another folder, it does not find this workspace and no policy is in force; "
    "before you write enforcement: enforce, name the workspace in the program"
)


@data_command
@click.command("adopt")
@click.argument("framework")
@click.argument("target", metavar="MODULE:AGENT")
@click.option("--as", "name", metavar="NAME", help="The program's name, if it does not call guard(NAME).")
@click.option("--dry-run", is_flag=True, help="Show the changes and write nothing.")
@click.pass_obj
def command(options: GlobalOptions, framework: str, target: str, name: str | None, *, dry_run: bool) -> int:
    """Declare the tools of an agent under agents:, with the schemas that its framework has, and a policy that observes.

    The module is imported from this folder; nothing governed runs meanwhile. MODULE:FUNCTION() calls a function that
    builds the agent. The changes are shown, then written. Nothing that is in the workspace is changed; without a
    workspace, one is made here.
    """
    from deedbook.format.terminal import plain
    from deedbook_guard.adoption.changes import plan, write
    from deedbook_guard.adoption.programs import import_program
    from deedbook_guard.agent_tools import find_adapter
    from deedbook_serve.bridging.settings import format_diff

    folder = Path(options.workspace).absolute()
    list_tools = find_adapter(framework)
    program = import_program(target, folder)
    agent = _agent_name(program, name)
    root = _root(program, agent, folder)
    listed = list_tools(program.agent)
    changes, notes = plan(root, agent, listed.tools)
    for each in changes:
        for line in format_diff(each.before or "", each.after, each.path).split("\n"):
            say(plain(line))
    for note in (*listed.unlisted, *notes):
        message(plain(f"note: {note}"))
    if not changes:
        message(f"{root}: nothing to change")
    elif dry_run:
        message("nothing was written")
    else:
        write(root, changes)
        written = ", ".join(display_path(root / each.path) for each in changes)
        message(f"written: {written}")
    guards = [found for found in program.guards if found.agent == agent]
    if any(found.workspace is None for found in guards):
        message(plain(f"note: {_NAME_WORKSPACE}: guard({agent!r}, workspace={str(root)!r})"))
    if not guards:
        message(plain(f"{target} is not governed yet: give it govern(guard({agent!r})) of the adapter"))
    return 0


def _agent_name(program: "Program", name: str | None) -> str:
    """Return the name of the program: *name*, or that of its only guard."""
    from deedbook.format.errors import BindingError, fault
    from deedbook_guard.workspaces import check_agent_name

    names = sorted({found.agent for found in program.guards})
    if name is None and len(names) != 1:
        has = f"it calls guard() for {', '.join(names)}" if names else "it does not call guard()"
        raise BindingError(fault("USAGE", f"{has}; name the program that has this agent: --as NAME"))
    chosen = name if name is not None else names[0]
    check_agent_name(chosen)
    return chosen


def _root(program: "Program", agent: str, folder: Path) -> Path:
    """Return the workspace of the program, or the folder to make one in."""
    from deedbook.format.errors import SourceError
    from deedbook.workspace.sources import find_workspace

    given = next((found.workspace for found in program.guards if found.agent == agent and found.workspace), None)
    start = folder / given if given else folder
    try:
        return find_workspace(start).resolve()
    except SourceError as problem:
        if problem.error.code != "WORKSPACE_NOT_FOUND":
            raise
        return start.resolve()
