"""``deedbook bridge``: coding agents' hooks, answered by the runtime; put into an agent's settings, and looked at."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.terminal import plain

from .common import Asked, Suggesting, json_option, shown
from .output import as_json, message, say, watched

if TYPE_CHECKING:
    from deedbook.bridging.agents import Known, Moment
    from deedbook.bridging.settings import Setting
    from deedbook.workspaces.declarations import ClientSource, Workspace

DEFAULT: Final = "claude-code"
PATIENCE: Final = 10
_SAMPLE: Final[tuple["Moment", ...]] = ("begin", "before", "failed", "end")


class _Bridge(Suggesting):
    """Has a command for every event of an agent that is known, beside those that are listed."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or (_event(cmd_name) if cmd_name in _events() else None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _events():
            return args[0], self.get_command(ctx, args[0]), args[1:]
        return super().resolve_command(ctx, args)


def _events() -> set[str]:
    from deedbook.bridging.agents import known, names

    return {event for name in names() if (agent := known(name)) for event in agent.events}


def _event(name: str) -> click.Command:
    option = click.Option(["--agent"], default=DEFAULT, show_default=True, metavar="NAME", help="Whose hook this is.")
    return click.Command(name, params=[option], callback=partial(_hook, name), help="Answer one hook.")


def _hook(event: str, agent: str) -> int:
    from deedbook.bridging.client import run

    from .process import give_back

    give_back()
    asked = click.get_current_context().find_object(Asked)
    state = _state(asked.workspace if asked else ".")
    return run([*(("--state", state) if state else ()), agent, event])


def _state(workspace: str) -> str:
    """Return the state folder; nothing where that cannot be told: then the client looks for it, or refuses."""
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.workspaces.site import told_state
    from deedbook.workspaces.sources import find_workspace

    try:
        root = find_workspace(Path(workspace))
        with Folder.at(root) as folder:
            return str(told_state(folder, root) or "")
    except (DeedbookError, OSError):
        return ""


@click.group("bridge", cls=_Bridge)
def command() -> None:
    """Let coding agents' hooks ask here; see docs/bridge.md.

    Beside the commands below, `deedbook bridge EVENT` answers one hook, such as PreToolUse: its JSON on standard input,
    the answer on standard output. What `install` writes does the same, and starts faster.
    """


@command.command("install")
@click.argument("agent", default=DEFAULT)
@click.option("--settings", metavar="FILE", help="The agent's settings file; the project's own without.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@click.option("--remove", is_flag=True, help="Take the hooks out again.")
@click.pass_obj
def install(asked: Asked, agent: str, settings: str | None, *, yes: bool, remove: bool) -> int:
    """Put the hooks of AGENT, a name under agents:, into its settings; shows the change first and asks."""
    from deedbook.bridging.settings import difference, installed, is_bare, removed
    from deedbook.kernel import read_workspace

    workspace = read_workspace(asked.workspace)
    client, known = _declared(workspace, agent)
    place = Path(settings) if settings else _own(workspace.root, known.settings)
    before = _text(place)
    if remove:
        after = removed(before, place=str(place))
    else:
        after = installed(known, before, _setting(workspace, client), place=str(place))
    if after == before:
        message(f"{shown(place)}: nothing to change")
        return 0
    for line in difference(before, after, shown(place)).split("\n"):
        say(plain(line))
    empty = remove and is_bare(known, after, place=str(place))
    if not yes and not _agreed(place, "Delete" if empty else "Write"):
        message("nothing was written")
        return 1
    _write(place, before, "" if empty else after)
    if remove:
        left = "deleted, since nothing else stood in it" if empty else "written without the hooks of the bridge"
        message(f"{shown(place)} is {left}; {known.title} asks here until it is started anew")
    else:
        message(f"{shown(place)} is written; {known.title} reads it when it starts. Answers come from: deedbook serve")
    return 0


@command.command("status")
@json_option
@click.pass_obj
def status(asked: Asked) -> int:
    """Say of each coding agent whether its hooks are installed, and whether a runtime answers."""
    from deedbook.kernel import read_workspace

    workspace = read_workspace(asked.workspace)
    answers = _answers(workspace.state)
    rows = [_row(workspace, client, known) for client, known in _agents(workspace)]
    if asked.json:
        as_json({"schema_version": "v1", "runtime": answers, "agents": rows})
        return 0
    say(f"runtime  {'answers' if answers else 'does not answer; start it with: deedbook serve'}")
    for row in rows:
        missing = f"; not at {', '.join(row['missing'])}" if row["missing"] and row["installed"] else ""
        hooks = f"hooks in {shown(Path(row['settings']))}{missing}" if row["installed"] else "no hooks installed"
        say(f"{row['agent']}  {row['title']}: {hooks}")
        if row["outdated"]:
            again = f"deedbook bridge install{'' if row['agent'] == DEFAULT else ' ' + row['agent']}"
            say(f"  not as they would be installed now, at {', '.join(row['outdated'])}; install again: {again}")
    if not rows:
        say("no coding agent is declared; for example: agents: {claude-code: {unknown_tools: ask}}")
    return 0


@command.command("test")
@click.argument("agent", default=DEFAULT)
@click.option("--tool", metavar="NAME", help="A tool of the agent's; without one, the first that has no effects.")
@click.option("--input", "text", default="{}", metavar="JSON", help="The tool's input.")
@click.pass_obj
def test(asked: Asked, agent: str, tool: str | None, text: str) -> int:
    """Send a sample through, as AGENT would: a session with one use of a tool, which is judged and not done."""
    import json
    from os import urandom

    from deedbook.kernel import read_workspace

    from .common import read_arguments

    given = read_arguments(text, "--input")
    workspace = read_workspace(asked.workspace)
    client, known = _declared(workspace, agent)
    name = tool or next(each for each, said in known.tools.items() if said["effects"] == "none")
    told = {"session": f"deedbook-test-{urandom(8).hex()}", "tool": name, "input": given, "call": "test"}
    fields = {known.fields[key]: value for key, value in told.items() if known.fields[key]}
    fields[known.fields["error"] or "error"] = "only a test: nothing was done"
    judged = 0
    for moment in _SAMPLE:
        event = known.event(moment)
        if event is not None and not (judged and moment == "failed"):
            body = json.dumps({**fields, known.fields["event"]: event}).encode()
            ran = subprocess.run(_setting(workspace, client).words(event), input=body, capture_output=True, check=False)  # noqa: S603 - our own client
            say(plain(f"{event}: status {ran.returncode} {ran.stdout.decode('utf-8', 'replace')}".rstrip()))
            for line in ran.stderr.decode("utf-8", "replace").splitlines():
                message(line)
            judged = ran.returncode if moment == "before" else judged
    return 3 if judged else 0


# --- parts ------------------------------------------------------------------------------------------------------------


def _agents(workspace: "Workspace") -> "Iterator[tuple[ClientSource, Known]]":
    from deedbook.bridging.agents import known

    for name in sorted(workspace.clients):
        client = workspace.clients[name]
        agent = known(client.kind or client.id)
        if agent is not None:
            yield client, agent


def _declared(workspace: "Workspace", name: str) -> "tuple[ClientSource, Known]":
    """Return a declared coding agent; raises `BindingError`."""
    from deedbook.bridging.agents import names
    from deedbook.errors import BindingError, fault

    for client, agent in _agents(workspace):
        if client.id == name:
            return client, agent
    known = ", ".join(names())
    why = f"no coding agent {name!r} is declared; write agents: {{{name}: {{}}}} in .system/deedbook.yaml"
    raise BindingError(fault("BRIDGE_AGENT_UNKNOWN", f"{why}, or with kind: one of {known}"))


def _setting(workspace: "Workspace", client: "ClientSource") -> "Setting":
    from deedbook.bridging import client as program
    from deedbook.bridging.settings import Setting

    limit = PATIENCE + (client.wait_s if client.asks == "deedbook" else 0)
    place = Path(program.__file__ or "").resolve()
    return Setting(
        name=client.id, python=sys.executable, client=str(place), state=str(workspace.state), limit=limit
    )  # fmt: skip


def _row(workspace: "Workspace", client: "ClientSource", known: "Known") -> dict[str, Any]:
    from deedbook.bridging.settings import events, outdated

    place = workspace.root / known.settings
    text = _text(place)
    found = events(text, place=str(place))
    return {
        "agent": client.id,
        "title": known.title,
        "settings": str(place),
        "installed": bool(found),
        "missing": [event for event in known.events if event not in found],
        "outdated": outdated(known, text, _setting(workspace, client), place=str(place)),
        "tried": known.tried,
    }


def _answers(state: Path) -> bool:
    from deedbook.serving.addresses import connect

    try:
        connect(state / "bridge.sock", 2.0).close()
    except OSError:
        return False
    return True


def _own(root: Path, settings: str) -> Path:
    """Return where a project's own settings are; a link leads to those of nobody else."""
    from deedbook.errors import DeedbookError, fault

    place = root / settings
    if not place.parent.resolve().is_relative_to(root.resolve()):
        why = f"leads to {place.parent.resolve()}, out of the workspace; if that is meant, say: --settings FILE"
        raise DeedbookError(fault("BRIDGE_SETTINGS", why, place=str(place)))
    return place


def _text(place: Path) -> str:
    from deedbook.errors import DeedbookError, fault

    if place.exists() and not place.is_file():
        raise DeedbookError(fault("BRIDGE_SETTINGS", "cannot be read: it is no regular file", place=str(place)))
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as problem:
        raise DeedbookError(fault("BRIDGE_SETTINGS", f"cannot be read: {problem}", place=str(place))) from None


def _agreed(place: Path, verb: str) -> bool:
    if not watched(sys.stdin):
        message("nobody is there to be asked; --yes writes it")
        return False
    return click.confirm(f"{verb} {shown(place)}?", err=True)


def _write(place: Path, before: str, after: str) -> None:
    """Put the settings where they belong, whole, or delete them where nothing is left.

    Whoever changed them meanwhile is not overwritten.
    """
    from hashlib import sha256

    from deedbook.files import Folder

    place.parent.mkdir(parents=True, exist_ok=True)
    expected = sha256(before.encode()).hexdigest() if place.exists() else ""
    with Folder.at(place.parent.resolve()) as folder:
        folder.replace(place.name, (after or "{}\n").encode(), expected=expected, mode=0o644)
        if not after:
            folder.remove(place.name)
