"""Rank abilities and documents for a prompt, with reasons."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option, profile_option
from deedbook.cli.completing import clients
from deedbook.cli.output import as_json, say, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deedbook.contract import RankedRoute

SECTION: Final = "Workspace"


@click.command("route")
@click.argument("prompt")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=5, show_default=True,
              help="The most abilities, and the most sections of documents, to list.")  # fmt: skip
@click.option("--client", metavar="NAME", shell_complete=clients, help="Rank for a client: only what is exposed to it.")
@profile_option
@json_option
@click.pass_obj
def command(options: GlobalOptions, prompt: str, limit: int, client: str | None, profile: str | None) -> int:
    """Rank abilities and sections of ROUTING.md and ABILITY.md for PROMPT, each with its reason.

    The hook `routing` gives the same ranking to models. A ranking grants no permission.
    """
    from deedbook.charter.compiler import compile_charter
    from deedbook.format.release import VERSION
    from deedbook.plugins.plugins import discover
    from deedbook.policy.callers import LOCAL, declared_client, exposed_abilities, route_data
    from deedbook.workspace.workspace import read_workspace
    from deedbook_hook_standard.routes import CharterRoutes

    catalogue = discover()
    workspace = read_workspace(options.workspace, profile, catalogue)
    document = compile_charter(workspace, catalogue, kernel=VERSION).document
    who = LOCAL if client is None else declared_client(document, client, LOCAL.via, LOCAL.id).principal
    abilities, knowledge = CharterRoutes(route_data(document, exposed_abilities(document))).rank(prompt, who, limit)
    if options.json:
        rows = {"abilities": [*_rows(abilities)], "knowledge": [*_rows(knowledge)]}
        as_json({"schema_version": "v1", **rows})
    elif abilities or knowledge:
        table([*_lines("ability", abilities), *_lines("knowledge", knowledge)])
    else:
        say("nothing matches; describe prompts in routing_hints of abilities, ROUTING.md and ABILITY.md")
    return 0


def _lines(kind: str, found: "Iterable[RankedRoute]") -> "Iterator[tuple[str, ...]]":
    for each in found:
        yield kind, each.route.id, each.by, f"{each.score:.2f}", each.reason


def _rows(found: "Iterable[RankedRoute]") -> "Iterator[dict[str, Any]]":
    for each in found:
        yield {
            "id": each.route.id,
            "title": each.route.title,
            "by": each.by,
            "words": each.words,
            "score": each.score,
            "reason": each.reason,
            "abilities": list(each.route.abilities),
            "links": list(each.route.links),
        }
