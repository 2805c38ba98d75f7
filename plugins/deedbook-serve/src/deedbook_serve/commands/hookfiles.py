"""The files that hold coding agents' hooks: which one is meant, what stands there, and how it is written."""

import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from deedbook.cli.common import display_path

if TYPE_CHECKING:
    from deedbook.workspace.declarations import ClientSource, Workspace
    from deedbook_serve.agents import Known
    from deedbook_serve.bridging.installations import Place
    from deedbook_serve.bridging.settings import Setting

PATIENCE: Final = 10


def agents_of(workspace: "Workspace") -> "Iterator[tuple[ClientSource, Known]]":
    """Yield the declared coding agents that are known."""
    from deedbook_serve.agents import known

    for name in sorted(workspace.clients):
        client = workspace.clients[name]
        agent = known(client.kind or client.id)
        if agent is not None:
            yield client, agent


def declared(workspace: "Workspace", name: str) -> "tuple[ClientSource, Known]":
    """Return a declared coding agent; raises `BindingError`."""
    from deedbook.format.errors import BindingError, fault
    from deedbook_serve.agents import names

    for client, agent in agents_of(workspace):
        if client.id == name:
            return client, agent
    known = ", ".join(names())
    why = f"no coding agent {name!r} is declared; write agents: {{{name}: {{}}}} in .system/deedbook.yaml"
    raise BindingError(fault("BRIDGE_AGENT_UNKNOWN", f"{why}, or with kind: one of {known}"))


def chosen(workspace: "Workspace", known: "Known", named: str | None, *, project: bool) -> "Place":
    """Return the file that is meant: one person's own, the *project*'s, or the *named* one; raises `DeedbookError`.

    A link leads to those of nobody else, and hooks of a file elsewhere are for this workspace alone.
    """
    from deedbook_serve.agents import HookFile
    from deedbook_serve.bridging.installations import Place, place, places

    root = workspace.root
    if named is None:
        found = place(known, known.project if project else known.personal, root, os.environ)
        if not found.only and not found.path.parent.resolve().is_relative_to(root.resolve()):
            why = (
                f"leads to {found.path.parent.resolve()}, out of the workspace; if that is meant, say: --settings FILE"
            )
            raise refused(why, found.path)
        return found
    path = Path(named).absolute()
    for each in places(known, root, os.environ):
        if each.path.resolve() == path.resolve():
            return each
    inside = path.resolve().is_relative_to(root.resolve())
    file = HookFile(path=str(path), begin=known.project.begin)
    return Place(file=file, path=Path(named), only="" if inside else str(root.resolve()))


def setting(workspace: "Workspace", client: "ClientSource", known: "Known", where: "Place") -> "Setting":
    """Return what *known* is to start, by the file *where* it stands; the project's names no place on this machine."""
    from deedbook_serve.bridging import client as program
    from deedbook_serve.bridging.settings import PROGRAM, Setting

    words = (sys.executable, "-I", "-S", str(Path(program.__file__ or "").resolve()), "--state", str(workspace.state))
    return Setting(
        name=client.id,
        program=(PROGRAM,) if where.file == known.project else words,
        limit=PATIENCE + (client.wait_s if client.asks == "deedbook" else 0),
        only=where.only,
        begin=where.file.begin,
    )


def check(workspace: "Workspace", client: "ClientSource", known: "Known", where: "Place") -> None:
    """See to it that hooks can stand in the file *where*; raises `DeedbookError` (``BRIDGE_SETTINGS``)."""
    from deedbook_serve.bridging.client import STATE

    if where.file == known.project and workspace.state.resolve() != (workspace.root / STATE).resolve():
        why = f"a file that is committed names no folders, and the runtime is found by {STATE} alone; here state: says"
        raise refused(f"{why} {workspace.state}; leave --project out", where.path)
    for row in files(workspace, client, known):
        if row["installed"] and Path(row["path"]).resolve() != where.path.resolve():
            why = (
                f"hooks of the bridge stand in {row['path']} already, and would ask a second time; take them out first"
            )
            how = {"personal": "", "project": " --project"}.get(row["role"], f" --settings {row['path']}")
            raise refused(f"{why}: deedbook bridge install {client.id}{how} --remove", where.path)


def files(workspace: "Workspace", client: "ClientSource", known: "Known") -> list[dict[str, Any]]:
    """Return what stands in each file that can hold hooks of *known*."""
    from deedbook_serve.bridging.installations import places

    rows: list[dict[str, Any]] = []
    for each in places(known, workspace.root, os.environ):
        role: Literal["personal", "project", "other"] = "other"
        if each.file in (known.personal, known.project):
            role = "personal" if each.file == known.personal else "project"
        rows.append({"path": str(each.path), "role": role, **_row(workspace, client, known, each)})
    return rows


def _row(workspace: "Workspace", client: "ClientSource", known: "Known", where: "Place") -> dict[str, Any]:
    from deedbook.format.errors import DeedbookError
    from deedbook_serve.bridging.installations import text_of
    from deedbook_serve.bridging.settings import events, outdated, switched_off
    from deedbook_serve.bridging.trust import trust

    row: dict[str, Any] = {
        "installed": False, "missing": [], "outdated": [], "off": [], "trusted": None, "trust": "", "problem": "",
    }  # fmt: skip
    name = str(where.path)
    try:
        text = text_of(where.path)
        found = events(text, where.only, place=name)
        row["off"] = switched_off(known, text, where.only, place=name)
        if found:
            row["installed"] = True
            row["missing"] = [event.name for event in known.installed if event.name not in found]
            row["trusted"], row["trust"] = trust(known, where, workspace.root, os.environ)
            row["outdated"] = outdated(known, text, setting(workspace, client, known, where), place=name)
    except DeedbookError as problem:
        row["problem"] = str(problem)
    return row


def told(row: dict[str, Any], agent: str) -> Iterator[str]:
    """Yield what a person should know of a file that holds hooks, a line each."""
    where = display_path(Path(row["path"]))
    if row["problem"]:
        yield row["problem"]
    if row["off"]:
        yield f"{where} switches hooks off: {', '.join(row['off'])}"
    if not row["installed"]:
        return
    which = {"project": " --project", "other": f" --settings {where}"}.get(row["role"], "")
    again = f"deedbook bridge install {agent}{which}"
    if row["missing"]:
        yield f"{where}: not at {', '.join(row['missing'])}; install again: {again}"
    if row["outdated"]:
        yield f"{where}: not as they would be installed now, at {', '.join(row['outdated'])}; install again: {again}"
    word = {True: "trusted", False: "not trusted", None: "whether they are trusted cannot be read"}[row["trusted"]]
    yield f"{where}: {word}; {row['trust']}"


def write(place: Path, before: str, after: str) -> None:
    """Replace the settings file as a whole, or delete it if nothing is left in it.

    A change that another program made meanwhile is not overwritten.
    """
    from deedbook.format.files import Folder

    place.parent.mkdir(parents=True, exist_ok=True)
    expected = sha256(before.encode()).hexdigest() if place.exists() else ""
    with Folder.at(place.parent.resolve()) as folder:
        folder.replace(place.name, (after or "{}\n").encode(), expected=expected, mode=0o644)
        if not after:
            folder.remove(place.name)


def refused(why: str, place: Path) -> Exception:
    """Return the error that a file of settings is not as it has to be."""
    from deedbook.format.errors import DeedbookError, fault

    return DeedbookError(fault("BRIDGE_SETTINGS", why, place=str(place)))
