"""List, find and check the agents."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from deedbook.contract import AgentInfo
    from deedbook_flow_runcontext.agent_choice import AgentQuery

SECTION: Final = "Workspace"


@data_command
@click.group("agents", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--can", metavar="ABILITY", help="Only agents that have this capability.")
@profile_option
@json_option
@click.pass_context
def command(ctx: click.Context, can: str | None, profile: str | None) -> int:
    """List, find and check agents."""
    return _list(ctx.obj, can, profile) if ctx.invoked_subcommand is None else 0


@command.command("list", short_help="List the agents that have a card, and the roles.")
@click.option("--can", metavar="ABILITY", help="Only agents that have this capability.")
@profile_option
@json_option
@click.pass_obj
def listing(options: GlobalOptions, can: str | None, profile: str | None) -> int:
    """List the agents that have a card, and the roles. No persona is read."""
    return _list(options, can, profile)


@command.command("find", short_help="Find agents by capabilities and domain.")
@click.argument("capabilities", nargs=-1, metavar="[CAPABILITY]...")
@click.option("--domain", default="", metavar="D", help="Only agents whose domain has these words.")
@profile_option
@json_option
@click.pass_obj
def find(options: GlobalOptions, capabilities: tuple[str, ...], domain: str, profile: str | None) -> int:
    """Find the agents whose cards have every CAPABILITY (at most 10), the best first. No persona is read.

    A capability is a name on a card, or the id of an ability. A name with a question mark is unknown: the agent is
    found by it and cannot use it.
    """
    query = _parse_query(capabilities, domain)
    found, places = _find(options, query, profile)
    if options.json:
        rows = [_describe_match(each, query, places[each.name]) for each in found]
        asked = {"capabilities": list(query.capabilities), "domain": query.domain}
        as_json({"schema_version": "v1", **asked, "agents": rows})
    elif found:
        table((each.name, _mark(each), each.domain, places[each.name]) for each in found)
    else:
        say(f"no agent has {query}" if capabilities or domain else "there are no agents with a card")
    return 0


@command.command("lint", short_help="Check the card of every agent.")
@json_option
@click.pass_obj
def lint(options: GlobalOptions) -> int:
    """Check the cards: form, state files, budgets, capabilities and tokens. Nothing is started.

    The number of tokens is an estimate. With errors the exit status is 1; warnings alone leave it 0.
    """
    from pathlib import Path

    from deedbook.format.terminal import plain, pluralise
    from deedbook.workspace.sources import find_workspace
    from deedbook_author.cards import check_cards

    made = check_cards(find_workspace(Path(options.workspace)).absolute())
    if options.json:
        as_json(made.as_json())
        return 0 if made.ok else 1
    table((name, f"about {tokens} tokens") for name, tokens in made.cards.items())
    for each in made.findings:
        code = f" [{each.code}]" if each.code else ""
        say(plain(f"{each.level}: {each.place or 'workspace'}: {each.message}{code}"))
    errors = sum(each.level == "error" for each in made.findings)
    told = f"{pluralise(errors, 'error')}, {pluralise(len(made.findings) - errors, 'warning')}"
    message(f"{pluralise(len(made.cards), 'card')} checked: {told}")
    return 0 if made.ok else 1


def _list(options: GlobalOptions, can: str | None, profile: str | None) -> int:
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


def _parse_query(capabilities: tuple[str, ...], domain: str) -> "AgentQuery":
    from deedbook.contract import Failed
    from deedbook.format.errors import BindingError, fault
    from deedbook_flow_runcontext.agent_choice import AgentQuery

    try:
        return AgentQuery.parse({"capabilities": list(capabilities), "domain": domain})
    except Failed as problem:
        raise BindingError(fault("USAGE", str(problem))) from None


def _find(options: GlobalOptions, query: "AgentQuery", profile: str | None) -> "tuple[list[AgentInfo], dict[str, str]]":
    """Return the agents that fit, and the place of each card."""
    from deedbook.charter.capabilities import Capabilities
    from deedbook.workspace.workspace import read_workspace

    source = read_workspace(options.workspace, profile)
    known = Capabilities(source)
    found = query.find([known.describe(card) for card in source.cards.values()])
    return found, {each.name: source.cards[each.name].place for each in found}


def _describe_match(agent: "AgentInfo", query: "AgentQuery", place: str) -> dict[str, Any]:
    return {
        "id": agent.name,
        "domain": agent.domain,
        "capabilities": sorted(agent.capabilities),
        "abilities": sorted(agent.abilities),
        "unknown": dict(agent.unknown),
        "usable": not query.unknown(agent),
        "place": place,
    }


def _mark(agent: "AgentInfo") -> str:
    """Return the capabilities, each unknown one with a question mark."""
    return " ".join(f"{name}?" if name in agent.unknown else name for name in sorted(agent.capabilities)) or "-"


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
