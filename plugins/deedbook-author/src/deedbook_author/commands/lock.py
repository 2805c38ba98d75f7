"""Compile the charter, show what changed, and pin it."""

from typing import TYPE_CHECKING, Final

import click

from deedbook.cli.common import GlobalOptions, describe_changes, json_option, profile_option, report_set_aside
from deedbook.cli.output import as_json, data_command, message, say

if TYPE_CHECKING:
    from deedbook.charter.difference import Difference
    from deedbook.charter.locks import ActiveCharter
    from deedbook.policy.defaults import Uncovered
    from deedbook.workspace.declarations import PackSource

SECTION: Final = "Workspace"


@data_command
@click.command("lock")
@click.option("--editable", is_flag=True, help="Accept plugins that are installed in place.")
@click.option("--no-servers", is_flag=True, help="Do not list the tools of MCP servers again.")
@click.option("--yes", is_flag=True, help="Accept changed tools of MCP servers.")
@profile_option
@json_option
@click.pass_obj
def command(options: GlobalOptions, profile: str | None, *, editable: bool, no_servers: bool, yes: bool) -> int:
    """Compile the charter, print what became looser or tighter, and pin it in .system/deedbook.lock.

    First, the tools of MCP servers are listed again and changes are shown.
    """
    from deedbook.charter.store import Store
    from deedbook.format.files import Folder
    from deedbook.format.release import VERSION
    from deedbook.format.terminal import plain
    from deedbook.plugins.plugins import discover
    from deedbook.plugins.policy_kinds import installed_kinds
    from deedbook.workspace.lockfile import LOCK
    from deedbook.workspace.workspace import read_workspace
    from deedbook_author.flow_notes import note_flows
    from deedbook_author.locking import find_unpinned_libraries, lock
    from deedbook_author.pack_effects import pack_effect
    from deedbook_author.policy_coverage import find_unguarded, find_unmatched, lint_policies_here

    if not no_servers and not _check_servers(options.workspace, yes=yes):
        message("nothing was pinned")
        return 1
    source, catalogue = read_workspace(options.workspace, profile), discover()
    with Folder.at(source.root) as root, Folder.at(source.state, create=True) as state:
        first = not root.exists(LOCK)
        opened = lock(source, catalogue, Store(state), root, kernel=VERSION, editable=editable)
    free, silent = find_unguarded(opened.charter.document), find_unmatched(opened.charter.document)
    effects = [(pack, pack_effect(opened.charter.document, pack)) for pack in source.packs.values()]
    if options.json:
        as_json(
            {
                "schema_version": "v1",
                "charter": opened.charter.digest,
                "previous": opened.previous,
                "looser": list(opened.changes.looser),
                "tighter": list(opened.changes.tighter),
                "other": list(opened.changes.other),
                "without_policy": [each.name for each in free],
                "never_asked": silent,
                **({"packs": [_describe_pack(*each) for each in effects]} if effects else {}),
            }
        )
        return 0
    _tell(opened, free, silent, first=first)
    for pack, effect in effects:
        _tell_pack(pack, effect)
    for each in lint_policies_here(opened.charter.document, installed_kinds(catalogue), source.policies):
        say(plain(f"{each.place}: {each}"))
    for place, text in note_flows(opened.charter.document, source.abilities.values()):
        say(plain(f"{place}: {text}"))
    if libraries := find_unpinned_libraries(opened.charter.document, catalogue):
        message(plain(f"not pinned are Python and the libraries that these plugins need: {', '.join(libraries)}"))
    message(f"charter {opened.charter.digest} is pinned in {LOCK}")
    return 0


def _check_servers(workspace: str, *, yes: bool) -> bool:
    """List the tools of the MCP servers again; return whether changes are accepted."""
    from deedbook.cli.common import survey
    from deedbook.plugins.features import Features
    from deedbook.plugins.plugins import discover

    found = survey(workspace)
    return Features(discover(), found.sections).all("before_lock", workspace=found, yes=yes)


def _describe_pack(pack: "PackSource", effect: "Difference") -> dict[str, object]:
    ways = {way: list(getattr(effect, way)) for way in ("looser", "tighter", "other")}
    return {"name": pack.id, "label": pack.label, "may_loosen": list(pack.may_loosen), **ways}


def _tell_pack(pack: "PackSource", effect: "Difference") -> None:
    """Print what a pack loosens and tightens in this workspace."""
    from deedbook.format.terminal import plain

    told = [f"{way} {text}" for way in ("looser", "tighter") for text in getattr(effect, way)]
    say(plain(f"{pack.label}: {len(effect.looser)} looser, {len(effect.tighter)} tighter"))
    for text in (*told, *(each for each in effect.other if "may_loosen" in each)):
        say(plain(f"  {text}"))


def _tell(opened: "ActiveCharter", free: "list[Uncovered]", silent: list[str], *, first: bool) -> None:
    from deedbook.format.terminal import plain, pluralise

    report_set_aside(opened.charter)
    changes = describe_changes(opened) if opened.previous else []  # a first charter has nothing to compare with
    for way, text in changes:
        say(f"{way:8}{plain(text)}")
    if first:
        say(f"first lock: {pluralise(len(opened.charter.document['sources']), 'source')} pinned")
    elif not changes:
        say("nothing changed")
    for each in free:
        say(plain(str(each)))
    for name in silent:
        say(f"{plain(name)} matches no ability and is never asked")
