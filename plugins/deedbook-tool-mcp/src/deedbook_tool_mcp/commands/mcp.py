"""Speak the Model Context Protocol: with servers, and as one."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, OpenGroup, confirm, json_option, survey
from deedbook.cli.output import as_json, data_command, message, say, table

from .servers import confirm_server, describe_server, print_changes, review, warn_left_out

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace
    from deedbook_tool_mcp.servers import ServerSource

SECTION: Final = "Serve"

_YAML_SECTION: Final = "servers"
yes_option = click.option("--yes", is_flag=True, help="Ask nothing: what is shown is accepted.")


@data_command
@click.group("mcp", cls=OpenGroup)
def command() -> None:
    """Speak the Model Context Protocol: with servers, and as one."""


@command.command("list")
@json_option
@click.pass_obj
def list_servers(options: GlobalOptions) -> int:
    """List the MCP servers that the workspace declares; starts none."""
    from deedbook_tool_mcp.servers import declared_servers

    servers = declared_servers(survey(options.workspace))
    if options.json:
        as_json({"schema_version": "v1", "servers": [describe_server(server) for server in servers.values()]})
    elif servers:
        table(
            (name, _format_tool_count(server), server.url or " ".join(server.command))
            for name, server in servers.items()
        )
    else:
        say("no servers are declared; add one with: deedbook mcp add NAME -- COMMAND")
    return 0


@command.command("tools", short_help="Show what a server offers as last listed; starts nothing.")
@click.argument("name")
@json_option
@click.pass_obj
def tools(options: GlobalOptions, name: str) -> int:
    """Show the tools and other requests of a server's latest listing, and each one's ability; starts nothing."""
    workspace = survey(options.workspace)
    server = _require_declared_server(workspace, name)
    rows = [_describe_tool(workspace, server, tool) for tool in server.offers]
    requests = [_describe_ability(workspace, server, method) for method in server.requests]
    if options.json:
        more = {"tools": rows, "requests": requests, "left_out": dict(server.left_out)}
        as_json({"schema_version": "v1", **describe_server(server), **more})
        return 0
    table((row["id"], row["effects"], row["summary"]) for row in (*rows, *requests))
    for row in rows:
        for note in row["notes"]:
            message(f"{row['id']}: {note}, and was left out")
    warn_left_out(server.left_out)
    return 0


@command.command("refresh", short_help="List again what servers offer, and keep what changed for review.")
@click.argument("names", nargs=-1)
@yes_option
@click.pass_obj
def refresh(options: GlobalOptions, names: tuple[str, ...], *, yes: bool) -> int:
    """List again the tools of servers (all, or those named), show what changed, and keep it for review."""
    from deedbook_tool_mcp.servers import declared_servers

    workspace = survey(options.workspace)
    servers = [_require_declared_server(workspace, name) for name in names] or [*declared_servers(workspace).values()]
    if not review(workspace, servers, yes=yes):
        message("nothing was written")
        return 1
    message("what the servers offer is kept in .system/servers/")
    return 0


@command.command("remove", short_help="Take a server and its abilities out of deedbook.yaml.")
@click.argument("name")
@yes_option
@click.pass_obj
def remove(options: GlobalOptions, name: str, *, yes: bool) -> int:
    """Take a server out of deedbook.yaml, with what it listed; its abilities are gone."""
    from deedbook.format.files import Folder
    from deedbook_author.yaml_edits import remove_member
    from deedbook_tool_mcp.servers import listing_path

    workspace = survey(options.workspace)
    server = _require_declared_server(workspace, name)
    if not confirm(f"Take out {server.id}, with {len(server.offers)} abilities?", yes=yes):
        return 1
    with Folder.at(workspace.root) as root:
        edit = _SettingsEdit(root)
        edit.write_settings(lambda text: remove_member(text, (_YAML_SECTION,), name, edit.path))
        if root.exists(listing_path(name)):
            root.remove(listing_path(name))
    message(f"{name} is no server of this workspace any more")
    return 0


@command.command(
    "add",
    short_help="Add an MCP server to the workspace, and list its tools.",
    context_settings={"ignore_unknown_options": False},
)
@click.argument("name")
@click.argument("command_words", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--url", metavar="URL", default="", help="Where it stands, in place of a command: streamable HTTP.")
@click.option("--env", "values", metavar="NAME=VALUE", multiple=True, help="Give it this environment variable.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="Send it this header.")
@click.option(
    "--secret", "secrets", metavar="NAME=SECRET", multiple=True, help="The same, with the value of a declared secret."
)
@click.option("--cwd", metavar="DIR", default="", help="The folder of the workspace that it works in.")
@click.option("--timeout-ms", type=click.IntRange(1, 86_400_000), help="The limit of a call.")
@click.option(
    "--trust-hints", is_flag=True, help="Write the effects that the server claims into deedbook.yaml, for review."
)
@yes_option
@click.pass_obj
def add(
    options: GlobalOptions, /, name: str, command_words: tuple[str, ...], *, yes: bool, trust_hints: bool, **given: Any
) -> int:
    """Add an MCP server: show what would be started, ask, look at its tools, and write all that down, or nothing.

    The effects of its tools are `write`, whatever it claims. With --trust-hints its claims are written as effects: of
    each tool, where a person reads them.
    """
    import attrs

    from deedbook.format.errors import BindingError
    from deedbook.format.files import Folder
    from deedbook.format.schema import Schemas, data_folder
    from deedbook.plugins.plugins import discover
    from deedbook_tool_mcp.server_listing import compare_listings, survey_server
    from deedbook_tool_mcp.servers import declared_servers

    body = _build_entry(command_words, given)
    workspace = survey(options.workspace)
    if name in declared_servers(workspace):
        raise click.UsageError(
            f"there is a server {name!r} already; look at it again with: deedbook mcp refresh {name}"
        )
    with Folder.at(workspace.root) as root:
        edit = _SettingsEdit(root)
        server = edit.build_server(name, body)
        if not confirm_server(server, yes=yes):
            return 1
        try:
            listing = survey_server(workspace, server, discover(), Schemas.load(data_folder("schemas")))
        except BindingError as problem:  # its place is a line that is not written
            raise BindingError(*(attrs.evolve(each, place=None) for each in problem.errors)) from None
        print_changes(name, compare_listings(None, listing))
        hinted = _read_hints(server, listing) if trust_hints else {}
        server_source = edit.add_server(workspace, name, {**body, **({"tools": hinted} if hinted else {})}, listing)
    warn_left_out(server_source.left_out)
    count = len(server_source.offers)
    if trust_hints:
        message(f"{name} claims the effects of {len(hinted)} of {count} tools; nothing proves them: read "
                f"servers.{name}.tools in .system/deedbook.yaml, and correct what is wrong")  # fmt: skip
    effects = "the effects written there" if hinted else "effects write"
    message(f"{name} is in .system/deedbook.yaml, with {count} abilities of {effects}; put in force by: "
            "deedbook lock, or the next start where lock: auto")  # fmt: skip
    return 0


def _read_hints(server: "ServerSource", listing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effects that a server claims for its tools, as in YAML; tools without claims are left out."""
    from deedbook_tool_mcp.listings import hinted_effects
    from deedbook_tool_mcp.servers import with_tools

    claimed = {name: hinted_effects(tool) for name, tool in with_tools(server, listing).tool_listings.items()}
    return {name: {"effects": effects} for name, effects in claimed.items() if effects}


def _build_entry(command_words: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry for the options."""
    if bool(command_words) == bool(given["url"]):
        raise click.UsageError("say either a command after --, or --url")
    inside = "headers" if given["url"] else "env"
    pairs = dict(_parse_pair(each) for each in given["headers" if given["url"] else "values"])
    hidden = {key: {"secret": value} for key, value in map(_parse_pair, given["secrets"])}
    body: dict[str, Any] = {"url": given["url"]} if given["url"] else {"command": list(_resolve_command(command_words))}
    body |= {inside: {**pairs, **hidden}} if pairs or hidden else {}
    body |= {"cwd": given["cwd"]} if given["cwd"] else {}
    return body | ({"timeout_ms": given["timeout_ms"]} if given["timeout_ms"] else {})


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    return name, value


def _resolve_command(command_words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with the full path of its program if the server's own PATH would not find it."""
    from deedbook.programs.process import BASE, find_program

    if "/" in command_words[0] or find_program(command_words[0], BASE["PATH"]):
        return (os.path.abspath(command_words[0]) if "/" in command_words[0] else command_words[0], *command_words[1:])  # noqa: PTH100 - no link is resolved
    return (find_program(command_words[0], None) or command_words[0], *command_words[1:])


def _require_declared_server(workspace: "Workspace", name: str) -> "ServerSource":
    from deedbook.format.schema import suggest
    from deedbook_tool_mcp.servers import declared_servers

    servers = declared_servers(workspace)
    if name not in servers:
        known = ", ".join(sorted(servers)) or "none"
        hint = suggest(name, servers) or "."
        raise click.UsageError(f"server {name!r} is not declared{hint} Declared: {known}")
    return servers[name]


def _format_tool_count(server: "ServerSource") -> str:
    return f"{len(server.offers)} tools" if server.listing else "not listed yet"


def _describe_ability(workspace: "Workspace", server: "ServerSource", name: str) -> dict[str, Any]:
    ability = workspace.abilities[f"{server.id}/{name}"]
    return {"id": ability.id, "effects": ability.effects, "summary": ability.summary}


def _describe_tool(workspace: "Workspace", server: "ServerSource", name: str) -> dict[str, Any]:
    listed = server.tool_listings[name]
    return {
        **_describe_ability(workspace, server, name),
        "description": listed.get("description"),
        "annotations": listed.get("annotations"),
        "notes": list(server.notes.get(name, ())),
    }


class _SettingsEdit:
    """Changes the settings of the workspace at *root*, completely or not at all."""

    path: Final = ".system/deedbook.yaml"

    def __init__(self, root: Any) -> None:
        from deedbook.format.canonical import digest
        from deedbook.workspace.sources import MAX_BYTES

        self._root = root
        self._raw: bytes = root.read(self.path, limit=MAX_BYTES)
        self._digest = digest(self._raw)

    def write_settings(self, change: Any) -> str:
        """Write the settings after *change*; return the digest of the new text."""
        written: str = self._root.replace(self.path, change(self._raw.decode()).encode(), expected=self._digest)
        return written

    def build_server(self, name: str, body: Mapping[str, Any]) -> "ServerSource":
        """Return the server that the entry would declare; raises `SourceError` if it is not valid."""
        from deedbook.format.errors import SourceError
        from deedbook.format.schema import Schemas, data_folder
        from deedbook.workspace.trees import SourceReader, SourceTree
        from deedbook_author.yaml_edits import add_member
        from deedbook_tool_mcp.servers import Servers

        reading = SourceReader(Schemas.load(data_folder("schemas")))
        tree = SourceTree(self._root, ".system")
        text = add_member(self._raw.decode(), (_YAML_SECTION,), name, dict(body), self.path)
        document = reading.parse_checked(tree, self.path, text.encode(), "deedbook_v1")
        value: Any = document.value if document else {}
        servers = Servers(reading, tree, document).read(
            {name: value.get(_YAML_SECTION, {}).get(name)} if document else {}, listed=False
        )
        if reading.faults:
            raise SourceError(*reading.faults)
        return servers[name]

    def add_server(
        self, workspace: "Workspace", name: str, body: Mapping[str, Any], listing: Mapping[str, Any]
    ) -> "ServerSource":
        """Write the listing and the entry; take both back if the workspace has a fault because of them."""
        from deedbook.format.errors import SourceError, raise_all
        from deedbook.workspace.workspace import survey_workspace
        from deedbook_author.yaml_edits import add_member
        from deedbook_tool_mcp.server_listing import write_listing
        from deedbook_tool_mcp.servers import declared_servers, listing_path

        _, before = survey_workspace(workspace.root)
        write_listing(self._root, listing)
        written = ""
        try:
            written = self.write_settings(lambda text: add_member(text, (_YAML_SECTION,), name, dict(body), self.path))
            found, faults = survey_workspace(workspace.root)
            old = {error.message for error in before}
            raise_all(SourceError, (error for error in faults if error.message not in old))
            assert found is not None
            return declared_servers(found)[name]
        except BaseException:
            if written:
                self._root.replace(self.path, self._raw, expected=written)
            self._root.remove(listing_path(name))
            raise
