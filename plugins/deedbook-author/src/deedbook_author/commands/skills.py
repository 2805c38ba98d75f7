"""List the skills; `skills show`, `skills lint`."""

from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, profile_option
from deedbook.cli.output import answer, as_json, data_command, message, say, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deedbook.workspace.declarations import Workspace

SECTION: Final = "Workspace"


@data_command
@click.group("skills", cls=SuggestingGroup, invoke_without_command=True)
@profile_option
@json_option
@click.pass_context
def command(ctx: click.Context, profile: str | None) -> int:
    """List the skills, show one, or list what keeps them from being portable."""
    return _list(ctx.obj, profile) if ctx.invoked_subcommand is None else 0


@command.command("list", short_help="List the skills: where they come from, and what they may use.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, profile: str | None) -> int:
    """List the skills: name, form, origin, allowed tools and triggers."""
    return _list(options, profile)


@command.command("show")
@click.argument("name")
@profile_option
@json_option
@click.pass_obj
def show(options: GlobalOptions, name: str, profile: str | None) -> int:
    """Show one skill in full."""
    found = _skills(options, profile)
    row = _find(name, found.rows)
    if options.json:
        as_json({"schema_version": "v1", "skills": [{**_as_json(row), "body": found.bodies[name]}]})
        return 0
    shown = {**row, "allowed": " ".join(row["allowed"]) or "nothing", "triggers": ", ".join(row["triggers"])}
    table((key, str(value)) for key, value in shown.items() if key not in ("obstacles", "without", "tools"))
    say()
    answer(found.bodies[name].rstrip("\n"))
    return 0


@command.command("lint", short_help="Check the spelling of every skill, and the tools that it names.")
@profile_option
@json_option
@click.pass_obj
def lint(options: GlobalOptions, profile: str | None) -> int:
    """Show the form of each skill, what keeps it from being portable, and which names of its tools grant nothing.

    Skills that cannot be read are listed with the reasons.
    """
    found = _skills(options, profile)
    if options.json:
        as_json(found.as_json())
        return 0
    _tell(found.notes)
    for row in found.rows:
        table([(row["name"], row["spelling"], "portable" if row["portable"] else "not portable")])
        for each in row["obstacles"]:
            say(f"  {_plain(each['place'])}: {_plain(each['why'])}")
        for name, why in row["without"].items():
            say(f"  {_plain(row['tools'])}: {_plain(name)} grants nothing: {_plain(why)}")
    for each in found.set_aside:
        table([(_plain(each["file"]), "set aside")])
        for why in each["why"]:
            say(f"  {_plain(why)}")
    return 0


def _list(options: GlobalOptions, profile: str | None) -> int:
    found = _skills(options, profile)
    if options.json:
        as_json(found.as_json())
        return 0
    _tell(found.notes)
    for each in found.set_aside:
        _tell(f"skill set aside: {why}" for why in each["why"])
    if not found.rows:
        say("there are no skills; add one in .system/skills/<name>/SKILL.md")
    table((row["name"], row["spelling"], row["from"], " ".join(row["allowed"]) or "-", ", ".join(row["triggers"]))
          for row in found.rows)  # fmt: skip
    return 0


@attrs.frozen
class Listing:
    """The skills of a workspace: a row each, their *bodies* by name, those that are *set_aside*, and *notes*."""

    rows: list[dict[str, Any]]
    bodies: dict[str, str]
    set_aside: list[dict[str, Any]]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        aside = {"set_aside": self.set_aside} if self.set_aside else {}
        return {"schema_version": "v1", "skills": [_as_json(row) for row in self.rows], **aside}


def _skills(options: GlobalOptions, profile: str | None) -> Listing:
    """Return the skills; raises `BindingError` with every fault."""
    from deedbook.charter.linker import Linker
    from deedbook.charter.skills import SkillCompiler
    from deedbook.format.errors import BindingError, raise_all
    from deedbook.plugins.plugins import discover
    from deedbook.workspace.workspace import read_workspace

    catalogue = discover()
    workspace = read_workspace(options.workspace, profile, catalogue)
    linker = Linker(catalogue)
    skills = SkillCompiler(workspace, linker)
    found = skills.entries()
    raise_all(BindingError, dict.fromkeys(linker.faults))
    return Listing(
        rows=[_row(name, found[name], workspace) for name in sorted(found)],
        bodies={name: entry["body"] for name, entry in found.items()},
        set_aside=[{"file": file, "why": said["why"]} for file, said in sorted(skills.set_aside.items())],
        notes=[note for pack in workspace.packs.values() for note in pack.notes],
    )


def _row(name: str, entry: dict[str, Any], workspace: "Workspace") -> dict[str, Any]:
    from deedbook.charter.skills import read_front_matter
    from deedbook.policy.commands import allowed_abilities
    from deedbook_author.spelling import front_matter_form, obstacles

    document = read_front_matter(entry["source"], workspace)
    found = obstacles(document) if document else []
    return {
        "name": name,
        "description": entry["description"],
        "spelling": front_matter_form(document) if document else "other",
        "portable": document is not None and not found,
        "from": _origin(entry["source"], workspace),
        "file": entry["source"],
        "allowed": allowed_abilities(entry),
        "triggers": entry["triggers"],
        "obstacles": [{"place": each.place, "why": each.why} for each in found],
        "without": entry.get("without", {}),
        "tools": document.place("/allowed-tools", key=True) if document else entry["source"],
    }


def _as_json(row: "Mapping[str, Any]") -> dict[str, Any]:
    """Return a row as JSON; ``without`` only if it is not empty."""
    return {key: value for key, value in row.items() if key != "tools" and (key != "without" or value)}


def _origin(source: str, workspace: "Workspace") -> str:
    for pack in workspace.packs.values():
        if source.startswith(f"{pack.label}: "):
            return pack.label
    if source.startswith(".system/"):
        return "workspace"
    return "root" if source in workspace.digests else "loader"


def _find(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from deedbook.format.errors import BindingError, fault
    from deedbook.format.schema import suggest

    for row in rows:
        if row["name"] == name:
            return row
    known = [row["name"] for row in rows]
    why = f"there is no skill {name!r}{suggest(name, known)}; skills: {', '.join(known) or 'none'}"
    raise BindingError(fault("USAGE", why))


def _tell(notes: "Iterable[str]") -> None:
    for note in notes:
        message(note)


def _plain(text: str) -> str:
    from deedbook.format.terminal import plain

    return plain(text)
