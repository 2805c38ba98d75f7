"""The files that hold coding agents' hooks: choosing one, describing it, and writing it."""

import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from deedbook.cli.common import display_path

if TYPE_CHECKING:
    from deedbook.workspace.declarations import ClientSource, Workspace
    from deedbook_serve.agents import CodingAgent
    from deedbook_serve.bridging.installations import HookLocation
    from deedbook_serve.bridging.settings import HookSettings

LIMIT: Final = 10


def list_declared_agents(workspace: "Workspace") -> "Iterator[tuple[ClientSource, CodingAgent]]":
    """Yield the declared clients that are supported coding agents."""
    from deedbook_serve.agents import find_agent

    for name in sorted(workspace.clients):
        client = workspace.clients[name]
        agent = find_agent(client.kind or client.id)
        if agent is not None:
            yield client, agent


def find_declared(workspace: "Workspace", name: str) -> "tuple[ClientSource, CodingAgent]":
    """Return a declared coding agent; raises `BindingError`."""
    from deedbook.format.errors import BindingError, fault
    from deedbook_serve.agents import list_agents

    for client, agent in list_declared_agents(workspace):
        if client.id == name:
            return client, agent
    known = ", ".join(list_agents())
    why = f"no coding agent {name!r} is declared; write agents: {{{name}: {{}}}} in .system/deedbook.yaml"
    raise BindingError(fault("BRIDGE_AGENT_UNKNOWN", f"{why}, or with kind: one of {known}"))


def choose_location(
    workspace: "Workspace", agent: "CodingAgent", settings_file: str | None, *, project: bool
) -> "HookLocation":
    """Return the file to write: the personal one, the *project*'s, or *settings_file*; raises `DeedbookError`.

    A link must not lead out of the workspace. Hooks in a file outside the workspace apply to this workspace only.
    """
    from deedbook_serve.agents import HookFile
    from deedbook_serve.bridging.installations import HookLocation, list_locations, locate

    root = workspace.root
    if settings_file is None:
        found = locate(agent, agent.project if project else agent.personal, root, os.environ)
        if not found.workspace and not found.path.parent.resolve().is_relative_to(root.resolve()):
            why = (
                f"leads to {found.path.parent.resolve()}, out of the workspace; if that is meant, say: --settings FILE"
            )
            raise settings_error(why, found.path)
        return found
    path = Path(settings_file).absolute()
    for each in list_locations(agent, root, os.environ):
        if each.path.resolve() == path.resolve():
            return each
    inside = path.resolve().is_relative_to(root.resolve())
    file = HookFile(path=str(path), begin=agent.project.begin)
    return HookLocation(file=file, path=Path(settings_file), workspace="" if inside else str(root.resolve()))


def build_settings(
    workspace: "Workspace", client: "ClientSource", agent: "CodingAgent", location: "HookLocation"
) -> "HookSettings":
    """Return the hook settings of *agent* for the file at *location*; the project's file names no machine path."""
    from deedbook_serve.bridging import client as program
    from deedbook_serve.bridging.settings import PROGRAM, HookSettings

    words = (sys.executable, "-I", "-S", str(Path(program.__file__ or "").resolve()), "--state", str(workspace.state))
    return HookSettings(
        name=client.id,
        program=(PROGRAM,) if location.file == agent.project else words,
        limit=LIMIT + (client.wait_s if client.asks == "deedbook" else 0),
        workspace=location.workspace,
        begin=location.file.begin,
    )


def check(workspace: "Workspace", client: "ClientSource", agent: "CodingAgent", location: "HookLocation") -> None:
    """Require that hooks can be written to *location*; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    from deedbook_serve.bridging.client import STATE

    if location.file == agent.project and workspace.state.resolve() != (workspace.root / STATE).resolve():
        why = f"a file that is committed names no folders, and the runtime is found by {STATE} alone; here state: says"
        raise settings_error(f"{why} {workspace.state}; leave --project out", location.path)
    for row in list_files(workspace, client, agent):
        if row["installed"] and Path(row["path"]).resolve() != location.path.resolve():
            why = (
                f"hooks of the bridge stand in {row['path']} already, and would ask a second time; take them out first"
            )
            how = {"personal": "", "project": " --project"}.get(row["role"], f" --settings {row['path']}")
            raise settings_error(f"{why}: deedbook bridge install {client.id}{how} --remove", location.path)


def list_files(workspace: "Workspace", client: "ClientSource", agent: "CodingAgent") -> list[dict[str, Any]]:
    """Return a description of each file that can hold hooks of *agent*."""
    from deedbook_serve.bridging.installations import list_locations

    rows: list[dict[str, Any]] = []
    for each in list_locations(agent, workspace.root, os.environ):
        role: Literal["personal", "project", "other"] = "other"
        if each.file in (agent.personal, agent.project):
            role = "personal" if each.file == agent.personal else "project"
        rows.append({"path": str(each.path), "role": role, **_describe_location(workspace, client, agent, each)})
    return rows


def _describe_location(
    workspace: "Workspace", client: "ClientSource", agent: "CodingAgent", location: "HookLocation"
) -> dict[str, Any]:
    from deedbook.format.errors import DeedbookError
    from deedbook_serve.bridging.installations import read_text
    from deedbook_serve.bridging.settings import find_commands, find_disabling_settings, find_outdated
    from deedbook_serve.bridging.trust import check_trust

    row: dict[str, Any] = {
        "installed": False, "missing": [], "outdated": [], "off": [], "trusted": None, "trust": "", "problem": "",
    }  # fmt: skip
    name = str(location.path)
    try:
        text = read_text(location.path)
        found = find_commands(text, location.workspace, place=name)
        row["off"] = find_disabling_settings(agent, text, location.workspace, place=name)
        if found:
            row["installed"] = True
            row["missing"] = [event.name for event in agent.installed_events if event.name not in found]
            row["trusted"], row["trust"] = check_trust(agent, location, workspace.root, os.environ)
            row["outdated"] = find_outdated(agent, text, build_settings(workspace, client, agent, location), place=name)
    except DeedbookError as problem:
        row["problem"] = str(problem)
    return row


def describe_file(row: dict[str, Any], agent: str) -> Iterator[str]:
    """Yield what a person should know about a file that holds hooks, one line each."""
    location = display_path(Path(row["path"]))
    if row["problem"]:
        yield row["problem"]
    if row["off"]:
        yield f"{location} switches hooks off: {', '.join(row['off'])}"
    if not row["installed"]:
        return
    which = {"project": " --project", "other": f" --settings {location}"}.get(row["role"], "")
    again = f"deedbook bridge install {agent}{which}"
    if row["missing"]:
        yield f"{location}: not at {', '.join(row['missing'])}; install again: {again}"
    if row["outdated"]:
        yield f"{location}: not as they would be installed now, at {', '.join(row['outdated'])}; install again: {again}"
    word = {True: "trusted", False: "not trusted", None: "whether they are trusted cannot be read"}[row["trusted"]]
    yield f"{location}: {word}; {row['trust']}"


def write(place: Path, before: str, after: str) -> None:
    """Replace the settings file as a whole, or delete it if it is empty.

    A concurrent change by another program is not overwritten.
    """
    from deedbook.format.files import Folder

    place.parent.mkdir(parents=True, exist_ok=True)
    expected = sha256(before.encode()).hexdigest() if place.exists() else ""
    with Folder.at(place.parent.resolve()) as folder:
        folder.replace(place.name, (after or "{}\n").encode(), expected=expected, mode=0o644)
        if not after:
            folder.remove(place.name)


def settings_error(why: str, place: Path) -> Exception:
    """Return the error for an unsuitable settings file."""
    from deedbook.format.errors import DeedbookError, fault

    return DeedbookError(fault("BRIDGE_SETTINGS", why, place=str(place)))
