"""``deedbook skills``: what the skills are, and how portable; imports the skill loaders and nothing else."""

from typing import TYPE_CHECKING, Any

import click

from .common import Asked, Suggesting, json_option, profile_option
from .output import answer, as_json, message, say, table

if TYPE_CHECKING:
    from deedbook.workspaces.declarations import Workspace


@click.group("skills", cls=Suggesting, invoke_without_command=True)
@profile_option
@json_option
@click.pass_context
def command(ctx: click.Context, profile: str | None) -> int:
    """List the skills, show one, or say what keeps them from being portable."""
    return _list(ctx.obj, profile) if ctx.invoked_subcommand is None else 0


@command.command("list")
@profile_option
@json_option
@click.pass_obj
def listing(asked: Asked, profile: str | None) -> int:
    """List the skills: name, spelling, where they come from, what they may use, what calls for them."""
    return _list(asked, profile)


@command.command("show")
@click.argument("name")
@profile_option
@json_option
@click.pass_obj
def show(asked: Asked, name: str, profile: str | None) -> int:
    """Show one skill whole."""
    rows, bodies, _ = _skills(asked, profile)
    row = _named(name, rows)
    if asked.json:
        as_json({"schema_version": "v1", "skills": [{**row, "body": bodies[name]}]})
        return 0
    shown = {**row, "allowed": " ".join(row["allowed"]) or "nothing", "triggers": ", ".join(row["triggers"])}
    table((key, str(value)) for key, value in shown.items() if key != "obstacles")
    say()
    answer(bodies[name].rstrip("\n"))
    return 0


@command.command("lint")
@profile_option
@json_option
@click.pass_obj
def lint(asked: Asked, profile: str | None) -> int:
    """Say which spelling each skill has, and what keeps it from being portable."""
    rows, _, notes = _skills(asked, profile)
    if asked.json:
        as_json({"schema_version": "v1", "skills": rows})
        return 0
    _tell(notes)
    for row in rows:
        table([(row["name"], row["spelling"], "portable" if row["portable"] else "not portable")])
        for each in row["obstacles"]:
            say(f"  {_plain(each['place'])}: {_plain(each['why'])}")
    return 0


def _list(asked: Asked, profile: str | None) -> int:
    rows, _, notes = _skills(asked, profile)
    if asked.json:
        as_json({"schema_version": "v1", "skills": rows})
        return 0
    _tell(notes)
    if not rows:
        say("there are no skills; add one in .system/skills/<name>/SKILL.md")
    table((row["name"], row["spelling"], row["from"], " ".join(row["allowed"]) or "-", ", ".join(row["triggers"]))
          for row in rows)  # fmt: skip
    return 0


def _skills(asked: Asked, profile: str | None) -> tuple[list[dict[str, Any]], dict[str, str], list[str]]:
    """Return a row for each skill, the bodies by name, and notes; raises `BindingError` with every fault."""
    from deedbook.compiling.linker import Linker
    from deedbook.compiling.skills import Skills
    from deedbook.errors import BindingError, raise_all
    from deedbook.kernel import read_workspace
    from deedbook.plugins import discover

    catalogue = discover()
    workspace = read_workspace(asked.workspace, profile, catalogue)
    linker = Linker(catalogue)
    found = Skills(workspace, linker).entries()
    raise_all(BindingError, dict.fromkeys(linker.faults))
    rows = [_row(name, found[name], workspace) for name in sorted(found)]
    notes = [note for pack in workspace.packs.values() for note in pack.notes]
    return rows, {name: entry["body"] for name, entry in found.items()}, notes


def _row(name: str, entry: dict[str, Any], workspace: "Workspace") -> dict[str, Any]:
    from deedbook.compiling.skills import written
    from deedbook.compiling.spelling import obstacles, spelling

    document = written(entry["source"], workspace)
    found = obstacles(document) if document else []
    return {
        "name": name,
        "description": entry["description"],
        "spelling": spelling(document) if document else "other",
        "portable": document is not None and not found,
        "from": _origin(entry["source"], workspace),
        "file": entry["source"],
        "allowed": entry["allowed"],
        "triggers": entry["triggers"],
        "obstacles": [{"place": each.place, "why": each.why} for each in found],
    }


def _origin(source: str, workspace: "Workspace") -> str:
    for pack in workspace.packs.values():
        if source.startswith(f"{pack.label}: "):
            return pack.label
    if source.startswith(".system/"):
        return "workspace"
    return "root" if source in workspace.digests else "loader"


def _named(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from deedbook.errors import BindingError, fault
    from deedbook.schema import suggest

    for row in rows:
        if row["name"] == name:
            return row
    known = [row["name"] for row in rows]
    why = f"there is no skill {name!r}{suggest(name, known)}; skills: {', '.join(known) or 'none'}"
    raise BindingError(fault("USAGE", why))


def _tell(notes: list[str]) -> None:
    for note in notes:
        message(note)


def _plain(text: str) -> str:
    from deedbook.terminal import plain

    return plain(text)
