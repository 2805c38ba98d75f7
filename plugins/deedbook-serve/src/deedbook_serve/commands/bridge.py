"""Answer coding agents' hooks; `bridge install`, `status`, `test`."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, display_path, json_option
from deedbook.cli.output import as_json, data_command, is_terminal, message, say
from deedbook.format.terminal import plain

from .hookfiles import (
    build_settings,
    check,
    choose_location,
    describe_file,
    find_declared,
    list_declared_agents,
    list_files,
    write,
)

if TYPE_CHECKING:
    from deedbook_serve.agents import Moment

SECTION: Final = "Serve"

DEFAULT: Final = "claude-code"
_EVENT: Final = re.compile("[A-Za-z][A-Za-z0-9]{2,99}")
"""The form of agents' event names."""
_SAMPLE: Final[tuple["Moment", ...]] = ("begin", "before", "failed", "end")


class _Bridge(SuggestingGroup):
    """A group with a command for every event of an agent, beside the listed commands.

    An event that no agent's table lists is recorded and has no answer. So a word counts as an event if it is in mixed
    case, as events are, or if it was not typed at a terminal.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or (_build_command(cmd_name) if self._is_event(ctx, cmd_name) else None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self._is_event(ctx, args[0]):
            return args[0], self.get_command(ctx, args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def _is_event(self, ctx: click.Context, word: str) -> bool:
        from deedbook.format.schema import suggest

        if word in _list_events() or not _EVENT.fullmatch(word):
            return word in _list_events()
        return word != word.lower() or not (is_terminal(sys.stdin) or suggest(word, self.list_commands(ctx)))


def _list_events() -> set[str]:
    from deedbook_serve.agents import find_agent, list_agents

    return {event for name in list_agents() if (agent := find_agent(name)) for event in agent.events}


def _build_command(name: str) -> click.Command:
    option = click.Option(["--agent"], default=DEFAULT, show_default=True, metavar="NAME", help="Whose hook this is.")
    return click.Command(name, params=[option], callback=partial(_run_hook, name), help="Answer one hook.")


def _run_hook(event: str, agent: str) -> int:
    from deedbook.cli.process import restore_stdout
    from deedbook.format.ownership import UntrustedError
    from deedbook_serve.bridging.client import refuse, run

    restore_stdout()
    asked = click.get_current_context().find_object(GlobalOptions)
    try:
        state = _find_state(asked.workspace if asked else ".")
    except UntrustedError as problem:
        return refuse(event, str(problem))
    return run([*(("--state", state) if state else ()), agent, event])


def _find_state(workspace: str) -> str:
    """Return the state folder; empty if it cannot be found: then the client searches for it, or refuses.

    Raises `UntrustedError` where others could answer in the place of the runtime.
    """
    from deedbook.format.errors import DeedbookError
    from deedbook.format.ownership import UntrustedError
    from deedbook.workspace.site import find_state
    from deedbook.workspace.sources import find_workspace
    from deedbook.workspace.trust import open_sources, open_state

    try:
        root = find_workspace(Path(workspace))
        with open_sources(root) as folder:
            state = find_state(folder, root)
        if state is not None:
            open_state(root, state).close()
        return str(state or "")
    except UntrustedError:
        raise
    except (DeedbookError, OSError):
        return ""


@data_command
@click.group("bridge", cls=_Bridge)
def command() -> None:
    """Answer the hooks of coding agents with the decisions of this workspace.

    Begin with `agents: {claude-code: {}}` in deedbook.yaml, `deedbook bridge install` and `deedbook serve`.

    Beside the commands below, `deedbook bridge EVENT` answers one hook, such as PreToolUse: its JSON on standard input,
    the answer on standard output. The program that `install` writes does the same, and starts faster.
    """


@command.command("install", short_help="Put the hooks of AGENT into its settings, or take them out.")
@click.argument("agent", default=DEFAULT)
@click.option("--project", is_flag=True, help="Write to the committed file, which names no folder.")
@click.option("--settings", metavar="FILE", help="Write to this file instead of your own for this project.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@click.option("--remove", is_flag=True, help="Take the hooks out again.")
@click.pass_obj
def install(asked: GlobalOptions, agent: str, settings: str | None, *, project: bool, yes: bool, remove: bool) -> int:
    """Put the hooks of AGENT, a name under agents:, into its settings; shows the change first and asks."""
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.installations import read_text
    from deedbook_serve.bridging.settings import format_diff, install_hooks, is_bare, remove_hooks

    if project and settings:
        raise click.UsageError("--project and --settings name two files; say one of them")
    workspace = read_workspace(asked.workspace)
    client, known_agent = find_declared(workspace, agent)
    location = choose_location(workspace, known_agent, settings, project=project)
    path, before = location.path, read_text(location.path)
    if remove:
        after = remove_hooks(before, location.workspace, place=str(path))
    else:
        check(workspace, client, known_agent, location)
        after = install_hooks(
            known_agent, before, build_settings(workspace, client, known_agent, location), place=str(path)
        )
    if after == before:
        message(f"{display_path(path)}: nothing to change")
        return 0
    for line in format_diff(before, after, display_path(path)).split("\n"):
        say(plain(line))
    empty = remove and is_bare(after, location.file.begin, place=str(path))
    if not yes and not _confirm(path, "Delete" if empty else "Write"):
        message("nothing was written")
        return 1
    write(path, before, "" if empty else after)
    if remove:
        outcome = "deleted, since nothing else stood in it" if empty else "written without the hooks of the bridge"
        message(f"{display_path(path)} is {outcome}; {known_agent.title} asks here until it is started anew")
        return 0
    message(
        f"{display_path(path)} is written; {known_agent.title} reads it when it starts. "
        "Answers come from: deedbook serve"
    )
    for each in (known_agent.trust, known_agent.needs):
        if each:
            message(each)
    return 0


@command.command("status", short_help="Show where each agent's hooks stand, and when one called last.")
@json_option
@click.pass_obj
def status(asked: GlobalOptions) -> int:
    """Say of each coding agent where its hooks stand, whether it trusts them, and when one called last."""
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.history import find_last_calls

    workspace = read_workspace(asked.workspace)
    answers, calls = _is_running(workspace.state), find_last_calls(workspace.state)
    rows: list[dict[str, Any]] = []
    for client, known in list_declared_agents(workspace):
        hook_files = list_files(workspace, client, known)
        rows.append(
            {
                "agent": client.id, "title": known.title, "installed": any(row["installed"] for row in hook_files),
                "last_call": calls.get(client.id), "files": hook_files, "needs": known.needs, "tried": known.tried,
            }
        )  # fmt: skip
    if asked.json:
        as_json({"schema_version": "v2", "runtime": answers, "agents": rows})
        return 0
    say(f"runtime  {'answers' if answers else 'does not answer; start it with: deedbook serve'}")
    for row in rows:
        places = ", ".join(display_path(Path(each["path"])) for each in row["files"] if each["installed"])
        hooks = f"hooks in {places}" if places else "no hooks installed"
        called = f"called last at {row['last_call']}" if row["last_call"] else "no hook has ever called"
        say(f"{row['agent']}  {row['title']}: {hooks}; {called}")
        for line in (line for each in row["files"] for line in describe_file(each, row["agent"])):
            say(plain(f"  {line}"))
        if places and row["needs"]:
            say(plain(f"  needs {row['needs']}"))
    if not rows:
        say("no coding agent is declared; for example: agents: {claude-code: {unknown_tools: ask}}")
    return 0


@command.command("test", short_help="Send a sample use of a tool through; it is judged and not done.")
@click.argument("agent", default=DEFAULT)
@click.option("--tool", metavar="NAME", help="A tool of the agent's; without one, the first that has no effects.")
@click.option("--input", "text", default="{}", metavar="JSON", help="The tool's input.")
@click.pass_obj
def test(asked: GlobalOptions, agent: str, tool: str | None, text: str) -> int:
    """Send a sample through, as AGENT would: a session with one use of a tool, which is judged and not done."""
    import json
    from os import environ, urandom

    from deedbook.cli.common import read_arguments
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.history import TEST
    from deedbook_serve.bridging.installations import locate

    tool_input = read_arguments(text, "--input")
    workspace = read_workspace(asked.workspace)
    client, known_agent = find_declared(workspace, agent)
    hook_settings = build_settings(
        workspace, client, known_agent, locate(known_agent, known_agent.personal, workspace.root, environ)
    )
    name = tool or next(each for each, declared_tool in known_agent.tools.items() if declared_tool["effects"] == "none")
    values = {"session": f"{TEST}{urandom(8).hex()}", "tool": name, "input": tool_input, "call": "test"}
    fields = {known_agent.fields[key]: value for key, value in values.items() if known_agent.fields[key]}
    fields[known_agent.fields["error"] or "error"] = "only a test: nothing was done"
    judged = 0
    for moment in _SAMPLE:
        event = known_agent.event(moment)
        if event is not None and not (judged and moment == "failed"):
            body = json.dumps({**fields, known_agent.fields["event"]: event.name}).encode()
            process = subprocess.run(hook_settings.build_command(event), input=body, capture_output=True, check=False)  # noqa: S603 - our own client
            say(
                plain(f"{event.name}: status {process.returncode} {process.stdout.decode('utf-8', 'replace')}".rstrip())
            )
            for line in process.stderr.decode("utf-8", "replace").splitlines():
                message(line)
            judged = process.returncode if moment == "before" else judged
    return 3 if judged else 0


# --- helpers --------------------------------------------------------------------------------------------------------


def _is_running(state: Path) -> bool:
    from deedbook_serve.serving.addresses import connect

    try:
        connect(state / "bridge.sock", 2.0).close()
    except OSError:
        return False
    return True


def _confirm(place: Path, verb: str) -> bool:
    if not is_terminal(sys.stdin):
        message("there is no terminal to ask at; --yes writes without asking")
        return False
    return click.confirm(f"{verb} {display_path(place)}?", err=True)
