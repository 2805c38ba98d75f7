"""Answer coding agents' hooks; `bridge install`, `status`, `test`."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import Asked, Suggesting, json_option, shown
from deedbook.cli.output import as_json, data_command, message, say, watched
from deedbook.format.terminal import plain

from .hookfiles import agents_of, check, chosen, declared, files, setting, told, write

if TYPE_CHECKING:
    from deedbook_serve.agents import Moment

SECTION: Final = "Serve"

DEFAULT: Final = "claude-code"
_EVENT: Final = re.compile("[A-Za-z][A-Za-z0-9]{2,99}")
"""How agents name their events."""
_SAMPLE: Final[tuple["Moment", ...]] = ("begin", "before", "failed", "end")


class _Bridge(Suggesting):
    """Has a command for every event of an agent, beside those that are listed.

    An event that no agent's table knows is recorded, and has no answer. So a word counts as one if it is written as
    events are, in mixed case, or if no person typed it.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or (_event(cmd_name) if self._is_event(ctx, cmd_name) else None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self._is_event(ctx, args[0]):
            return args[0], self.get_command(ctx, args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def _is_event(self, ctx: click.Context, word: str) -> bool:
        from deedbook.format.schema import suggest

        if word in _events() or not _EVENT.fullmatch(word):
            return word in _events()
        return word != word.lower() or not (watched(sys.stdin) or suggest(word, self.list_commands(ctx)))


def _events() -> set[str]:
    from deedbook_serve.agents import known, names

    return {event for name in names() if (agent := known(name)) for event in agent.events}


def _event(name: str) -> click.Command:
    option = click.Option(["--agent"], default=DEFAULT, show_default=True, metavar="NAME", help="Whose hook this is.")
    return click.Command(name, params=[option], callback=partial(_hook, name), help="Answer one hook.")


def _hook(event: str, agent: str) -> int:
    from deedbook.cli.process import give_back
    from deedbook_serve.bridging.client import run

    give_back()
    asked = click.get_current_context().find_object(Asked)
    state = _state(asked.workspace if asked else ".")
    return run([*(("--state", state) if state else ()), agent, event])


def _state(workspace: str) -> str:
    """Return the state folder; nothing where that cannot be told: then the client looks for it, or refuses."""
    from deedbook.format.errors import DeedbookError
    from deedbook.format.files import Folder
    from deedbook.workspace.site import find_state
    from deedbook.workspace.sources import find_workspace

    try:
        root = find_workspace(Path(workspace))
        with Folder.at(root) as folder:
            return str(find_state(folder, root) or "")
    except (DeedbookError, OSError):
        return ""


@data_command
@click.group("bridge", cls=_Bridge)
def command() -> None:
    """Answer the hooks of coding agents with the decisions of this workspace.

    Begin with `agents: {claude-code: {}}` in deedbook.yaml, `deedbook bridge install` and `deedbook serve`.

    Beside the commands below, `deedbook bridge EVENT` answers one hook, such as PreToolUse: its JSON on standard input,
    the answer on standard output. What `install` writes does the same, and starts faster.
    """


@command.command("install", short_help="Put the hooks of AGENT into its settings, or take them out.")
@click.argument("agent", default=DEFAULT)
@click.option("--project", is_flag=True, help="Write to the committed file, which names no folder.")
@click.option("--settings", metavar="FILE", help="Write to this file instead of your own for this project.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@click.option("--remove", is_flag=True, help="Take the hooks out again.")
@click.pass_obj
def install(asked: Asked, agent: str, settings: str | None, *, project: bool, yes: bool, remove: bool) -> int:
    """Put the hooks of AGENT, a name under agents:, into its settings; shows the change first and asks."""
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.installations import text_of
    from deedbook_serve.bridging.settings import difference, installed, is_bare, removed

    if project and settings:
        raise click.UsageError("--project and --settings name two files; say one of them")
    workspace = read_workspace(asked.workspace)
    client, known = declared(workspace, agent)
    where = chosen(workspace, known, settings, project=project)
    place, before = where.path, text_of(where.path)
    if remove:
        after = removed(before, where.only, place=str(place))
    else:
        check(workspace, client, known, where)
        after = installed(known, before, setting(workspace, client, known, where), place=str(place))
    if after == before:
        message(f"{shown(place)}: nothing to change")
        return 0
    for line in difference(before, after, shown(place)).split("\n"):
        say(plain(line))
    empty = remove and is_bare(after, where.file.begin, place=str(place))
    if not yes and not _agreed(place, "Delete" if empty else "Write"):
        message("nothing was written")
        return 1
    write(place, before, "" if empty else after)
    if remove:
        left = "deleted, since nothing else stood in it" if empty else "written without the hooks of the bridge"
        message(f"{shown(place)} is {left}; {known.title} asks here until it is started anew")
        return 0
    message(f"{shown(place)} is written; {known.title} reads it when it starts. Answers come from: deedbook serve")
    for each in (known.trust, known.needs):
        if each:
            message(each)
    return 0


@command.command("status", short_help="Show where each agent's hooks stand, and when one called last.")
@json_option
@click.pass_obj
def status(asked: Asked) -> int:
    """Say of each coding agent where its hooks stand, whether it trusts them, and when one called last."""
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.history import last_calls

    workspace = read_workspace(asked.workspace)
    answers, calls = _answers(workspace.state), last_calls(workspace.state)
    rows: list[dict[str, Any]] = []
    for client, known in agents_of(workspace):
        found = files(workspace, client, known)
        rows.append(
            {
                "agent": client.id, "title": known.title, "installed": any(row["installed"] for row in found),
                "last_call": calls.get(client.id), "files": found, "needs": known.needs, "tried": known.tried,
            }
        )  # fmt: skip
    if asked.json:
        as_json({"schema_version": "v2", "runtime": answers, "agents": rows})
        return 0
    say(f"runtime  {'answers' if answers else 'does not answer; start it with: deedbook serve'}")
    for row in rows:
        places = ", ".join(shown(Path(each["path"])) for each in row["files"] if each["installed"])
        hooks = f"hooks in {places}" if places else "no hooks installed"
        called = f"called last at {row['last_call']}" if row["last_call"] else "no hook has ever called"
        say(f"{row['agent']}  {row['title']}: {hooks}; {called}")
        for line in (line for each in row["files"] for line in told(each, row["agent"])):
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
def test(asked: Asked, agent: str, tool: str | None, text: str) -> int:
    """Send a sample through, as AGENT would: a session with one use of a tool, which is judged and not done."""
    import json
    from os import environ, urandom

    from deedbook.cli.common import read_arguments
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.bridging.history import TEST
    from deedbook_serve.bridging.installations import place

    given = read_arguments(text, "--input")
    workspace = read_workspace(asked.workspace)
    client, known = declared(workspace, agent)
    own = setting(workspace, client, known, place(known, known.personal, workspace.root, environ))
    name = tool or next(each for each, said in known.tools.items() if said["effects"] == "none")
    told = {"session": f"{TEST}{urandom(8).hex()}", "tool": name, "input": given, "call": "test"}
    fields = {known.fields[key]: value for key, value in told.items() if known.fields[key]}
    fields[known.fields["error"] or "error"] = "only a test: nothing was done"
    judged = 0
    for moment in _SAMPLE:
        event = known.event(moment)
        if event is not None and not (judged and moment == "failed"):
            body = json.dumps({**fields, known.fields["event"]: event.name}).encode()
            ran = subprocess.run(own.words(event), input=body, capture_output=True, check=False)  # noqa: S603 - our own client
            say(plain(f"{event.name}: status {ran.returncode} {ran.stdout.decode('utf-8', 'replace')}".rstrip()))
            for line in ran.stderr.decode("utf-8", "replace").splitlines():
                message(line)
            judged = ran.returncode if moment == "before" else judged
    return 3 if judged else 0


# --- parts ------------------------------------------------------------------------------------------------------------


def _answers(state: Path) -> bool:
    from deedbook_serve.serving.addresses import connect

    try:
        connect(state / "bridge.sock", 2.0).close()
    except OSError:
        return False
    return True


def _agreed(place: Path, verb: str) -> bool:
    if not watched(sys.stdin):
        message("nobody is there to be asked; --yes writes it")
        return False
    return click.confirm(f"{verb} {shown(place)}?", err=True)
