"""Review of MCP servers for ``deedbook mcp`` and ``deedbook lock``: confirm the start, list the tools, compare."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deedbook.cli.common import confirm
from deedbook.cli.output import message, say

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace
    from deedbook_tool_mcp.server_listing import ListingChange
    from deedbook_tool_mcp.servers import ServerSource


def review(workspace: "Workspace", servers: "Iterable[ServerSource]", *, yes: bool) -> bool:
    """List the tools of *servers*, show the changes, and store them if accepted; return whether they were.

    A server with new connection settings needs a confirmation before it is started.
    """
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.plugins.plugins import discover
    from deedbook_tool_mcp.server_listing import (
        compare_listings,
        is_reached_as,
        read_listing,
        survey_server,
        write_listing,
    )

    catalogue, schemas = discover(), Schemas.load(data_folder("schemas"))
    with Folder.at(workspace.root) as root:
        listings = []
        for server in servers:
            before = read_listing(root, server.id)
            if not is_reached_as(server, before) and not confirm_server(server, yes=yes):
                return False
            after = survey_server(workspace, server, catalogue, schemas)
            changes = list(compare_listings(before, after))
            print_changes(server.id, changes)
            if changes or before != after:
                listings.append((after, bool(changes)))
        if any(is_news for _, is_news in listings) and not confirm("Accept this?", yes=yes):
            return False
        for listing, _ in listings:
            write_listing(root, listing)
    return True


def confirm_server(server: "ServerSource", *, yes: bool) -> bool:
    """Show exactly what would be started or reached, and ask."""
    from deedbook.format.terminal import plain

    if server.url:
        say(f"{plain(server.id)} is reached at  {plain(server.url)}")
    else:
        say(f"{plain(server.id)} is started with  {plain(shlex.join(server.command))}")
        say(f"  in the folder {plain(server.cwd or '.')}")

    for name, value in {**server.env, **server.headers}.items():
        say(f"  {plain(name)} = {plain(value) if isinstance(value, str) else 'the secret ' + plain(value['secret'])}")
    return confirm("Reach it?" if server.url else "Start it?", yes=yes)


def print_changes(server: str, changes: "Iterable[ListingChange]") -> None:
    """Print the changes line by line, safe for a terminal."""
    from deedbook.format.terminal import plain

    for each in changes:
        what = f"{server}/{each.tool}" if each.tool else server
        if each.sign == "~":
            say(f"~ {plain(what)}: {plain(each.part)}")
            say(f"    was  {plain(each.before)}")
            say(f"    now  {plain(each.after)}")
        else:
            say(f"{each.sign} {plain(what)}: {plain(each.after or each.before)}")


def warn_left_out(left_out: Mapping[str, str]) -> None:
    """Print the tools that did not become abilities."""
    for name, why in sorted(left_out.items()):
        message(f"left out: {name}: {why}")


def describe_server(server: "ServerSource") -> dict[str, Any]:
    """Return the description of a server as JSON."""
    return {
        "name": server.id,
        "command": list(server.command) or None,
        "url": server.url or None,
        "env": sorted({**server.env, **server.headers}),
        "about": dict(server.about) or None,
        "tools": len(server.offers),
        "left_out": dict(server.left_out),
        "place": server.place,
    }
