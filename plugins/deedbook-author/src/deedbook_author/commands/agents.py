"""List the agents that have a card, and the roles."""

from typing import Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.output import as_json, data_command, say, table

SECTION: Final = "Workspace"


@data_command
@click.command("agents")
@click.option("--can", metavar="ABILITY", help="Only agents that have this capability.")
@profile_option
@json_option
@click.pass_obj
def command(options: GlobalOptions, can: str | None, profile: str | None) -> int:
    """List the agents that have a card, and the roles."""
    from deedbook.workspace.workspace import read_workspace

    source = read_workspace(options.workspace, profile)
    rows = [_card(source.cards[name]) for name in sorted(source.cards)]
    rows += [_role(source.roles[name]) for name in sorted(source.roles)]
    rows = [row for row in rows if can is None or can in row["capabilities"]]
    if options.json:
        as_json({"schema_version": "v1", "agents": rows})
    elif rows:
        table(
            (row["id"], row["kind"], " ".join(row["capabilities"]) or "-", row["domain"] or row["place"])
            for row in rows
        )
    else:
        say("no agents; add a role as .system/agents/<role>.md, or a card as .system/agents/<name>/.agent")
    return 0


def _card(card: Any) -> dict[str, Any]:
    return {
        "id": card.id,
        "kind": "agent",
        "domain": card.domain,
        "capabilities": sorted(card.capabilities),
        "state": dict(card.state),
        "budget": dict(card.budget),
        "bytes": card.size,
        "persona": card.persona is not None,
        "place": card.place,
    }


def _role(role: Any) -> dict[str, Any]:
    return {
        "id": role.id,
        "kind": "role",
        "domain": "",
        "capabilities": [],
        "state": {},
        "budget": {},
        "bytes": len(role.body.encode()),
        "persona": True,
        "place": role.place,
    }
