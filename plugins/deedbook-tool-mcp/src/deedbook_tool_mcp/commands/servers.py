"""What ``deedbook mcp`` and ``deedbook lock`` do with MCP servers: show what would be started, ask, look, compare."""

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deedbook.cli.common import confirm
from deedbook.cli.output import message, say

if TYPE_CHECKING:
    from deedbook.workspace.declarations import ServerSource, Workspace
    from deedbook_tool_mcp.surveys import News


def review(workspace: "Workspace", servers: "Iterable[ServerSource]", *, yes: bool) -> bool:
    """Look at *servers*, show what is other than before, and keep it if that is wanted; say whether it was.

    One that would be started in another way than before is asked about first.
    """
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.plugins.plugins import discover
    from deedbook_tool_mcp.surveys import compared, is_reached_as, keep, last, look

    catalogue, schemas = discover(), Schemas.load(data_folder("schemas"))
    with Folder.at(workspace.root) as root:
        made = []
        for server in servers:
            before = last(root, server.id)
            if not is_reached_as(server, before) and not agreed(server, yes=yes):
                return False
            after = look(workspace, server, catalogue, schemas)
            news = list(compared(before, after))
            tell(server.id, news)
            if news or before != after:
                made.append((after, bool(news)))
        if any(is_news for _, is_news in made) and not confirm("Accept this?", yes=yes):
            return False
        for listing, _ in made:
            keep(root, listing)
    return True


def agreed(server: "ServerSource", *, yes: bool) -> bool:
    """Show what exactly would be started or reached, and ask."""
    from deedbook.format.terminal import plain

    if server.url:
        say(f"{plain(server.id)} is reached at  {plain(server.url)}")
    else:
        say(f"{plain(server.id)} is started with  {plain(shlex.join(server.command))}")
        say(f"  in the folder {plain(server.cwd or '.')}")

    for name, value in {**server.env, **server.headers}.items():
        say(f"  {plain(name)} = {plain(value) if isinstance(value, str) else 'the secret ' + plain(value['secret'])}")
    return confirm("Reach it?" if server.url else "Start it?", yes=yes)


def tell(server: str, news: "Iterable[News]") -> None:
    """Show what is other than before, line by line, safe to print."""
    from deedbook.format.terminal import plain

    for each in news:
        what = f"{server}/{each.tool}" if each.tool else server
        if each.way == "~":
            say(f"~ {plain(what)}: {plain(each.part)}")
            say(f"    was  {plain(each.before)}")
            say(f"    now  {plain(each.after)}")
        else:
            say(f"{each.way} {plain(what)}: {plain(each.after or each.before)}")


def warn_left_out(left_out: Mapping[str, str]) -> None:
    """Say which tools are no abilities."""
    for name, why in sorted(left_out.items()):
        message(f"left out: {name}: {why}")


def shown(server: "ServerSource") -> dict[str, Any]:
    """Return what is said of a server as JSON."""
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
