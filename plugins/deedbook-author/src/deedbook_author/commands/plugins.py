"""List what is installed, and who uses it."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, report_error, say, table

from .parameters import KINDS

if TYPE_CHECKING:
    from deedbook.plugins.plugins import Catalogue
    from deedbook.workspace.declarations import Workspace

SECTION: Final = "Begin"


@data_command
@click.command("plugins")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of one kind.")
@json_option
@click.pass_obj
def command(options: GlobalOptions, kind: str | None) -> int:
    """List the installed plugins, and where the workspace uses them. Installing a plugin activates nothing."""
    from deedbook.plugins.plugins import discover

    catalogue = discover()
    used = _find_used(options.workspace)
    rows = [row for row in _rows(catalogue, used) if kind in (None, row["kind"])]
    clashes = [
        {"kind": of, "name": name, "distributions": [offer.distribution for offer in offers]}
        for (of, name), offers in sorted(catalogue.clashes.items())
    ]
    if options.json:
        told = {"plugins": rows, "clashes": clashes, "unreadable": list(catalogue.unreadable)}
        as_json({"schema_version": "v1", **told})
        return 0
    if rows:
        table((row["kind"], row["name"], f"{row['distribution']} {row['version']}", _usage(row)) for row in rows)
    else:
        say("no plugin of that kind is installed" if kind else "no plugins are installed")
    for clash in clashes:
        report_error(f"{clash['kind']} {clash['name']!r} is offered by {' and '.join(clash['distributions'])}")
    for place in catalogue.unreadable:
        report_error(f"metadata cannot be read: {place}")
    return 0


def _rows(catalogue: "Catalogue", used: dict[tuple[str, str], list[str]]) -> list[dict[str, Any]]:
    """Return one row for each plugin, features last."""
    from deedbook.plugins.groups import FEATURE

    return [
        {
            "kind": offer.kind,
            "name": offer.name,
            "distribution": offer.distribution,
            "version": offer.version,
            "editable": offer.editable,
            "used": used.get((offer.kind, offer.name), []),
        }
        for _, offer in sorted(catalogue.offers.items(), key=lambda item: (item[0][0] == FEATURE, item[0]))
    ]


def _usage(row: dict[str, Any]) -> str:
    used: list[str] = row["used"]
    more = f" and {len(used) - 3} more" if len(used) > 3 else ""
    idle = "installed" if row["kind"] == "feature" else "not used here"
    told = f"used by {', '.join(used[:3])}{more}" if used else idle
    return f"{told}; installed in place" if row["editable"] else told


def _find_used(workspace: str) -> dict[tuple[str, str], list[str]]:
    """Return the plugins that the workspace names, with the definitions that name them; empty without a workspace."""
    from deedbook.format.errors import DeedbookError
    from deedbook.workspace.workspace import read_workspace

    try:
        source = read_workspace(workspace)
    except DeedbookError:
        return {}
    used: dict[tuple[str, str], list[str]] = {}
    for kind, name, who in _references(source):
        used.setdefault((kind, name), []).append(who)
    return used


def _references(source: "Workspace") -> list[tuple[str, str, str]]:
    named = [(kind, name, each.id) for each in source.abilities.values() for kind, name in each.handler.items()]
    named += [("hook", str(each.handler["hook"]), each.id) for each in source.hooks.values() if "hook" in each.handler]
    named += [("policy", each.kind, each.id) for each in source.policies.values()]
    named += [("skill", each.loader, "the workspace's skills") for each in source.loaders]
    named += [("pack", name, "packs") for name in source.packs]
    named += [("feature", name, "features") for name in source.features]
    profile = source.profiles.get(source.profile)
    named += [
        ("provider", model.provider, f"model/{tier}") for tier, model in (profile.models if profile else {}).items()
    ]
    return sorted(named)
