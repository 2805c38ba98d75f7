"""Show abilities as the tools of an MCP server."""

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from deedbook.cli.common import announce

if TYPE_CHECKING:
    from deedbook import Kernel


@click.command("serve")
@click.option("--client", default="mcp", metavar="NAME", help="Which client of agents: is served (mcp: everything).")
@click.option(
    "--upstream", default="", metavar="NAME", help="Be the gateway in front of this server of servers: alone."
)
@click.option("--profile", metavar="NAME", help="Use this profile instead of the workspace's own.")
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP instead of standard input and output.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="PRINCIPAL=SECRET",
    help="Over HTTP: a client that sends this secret of secrets: acts on behalf of that principal.",
)
@click.option("--allow-host", "hosts", multiple=True, metavar="HOST", help="Over HTTP: a further name of this server.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 86400),
    default=30.0,
    metavar="SECONDS",
    show_default=True,
    help="Wait so long for a person where one has to decide.",
)
@click.pass_obj
def command(
    options: Any, /, client: str, upstream: str, profile: str | None, http: str | None, wait: float, **names: Any
) -> int:
    """Show abilities as the tools of an MCP server, at standard input and output or over HTTP.

    With --upstream it is a gateway: it passes on the tools, resources and prompts of one server, each request judged.
    """
    from deedbook import open_kernel

    tokens, hosts = names["tokens"], names["hosts"]
    if http is None and (tokens or hosts):
        raise click.UsageError("--token and --allow-host go with --http")
    source, sink = _take_stdio() if http is None else (None, None)  # before plugins, which may print
    with open_kernel(options.workspace, profile=profile) as kernel:
        announce(kernel.active_charter)
        if upstream:
            _check_upstream(upstream, kernel)
        from deedbook_tool_mcp.serving.sessions import ConnectionSessions

        if http is None:
            from deedbook_tool_mcp.serving.server import serve_stdio

            serve_stdio(ConnectionSessions(kernel, client, upstream), wait, source, sink)
        else:
            from deedbook_tool_mcp.serving.http import HttpAddress, serve_http

            address = HttpAddress.parse(http, tokens, hosts, kernel)
            serve_http(ConnectionSessions(kernel, client, upstream), wait, address)
    return 0


def _check_upstream(name: str, kernel: "Kernel") -> None:
    """Raise `click.UsageError` for a server that is not declared; note one whose other requests are not known."""
    from deedbook.format.schema import suggest

    servers = kernel.bindings.charter.document.get("servers", {})
    if name not in servers:
        known = ", ".join(sorted(servers)) or "none"
        why = f"server {name!r} is not declared under servers:{suggest(name, servers) or '.'} Declared: {known}"
        raise click.UsageError(why)
    if "requests" not in servers[name]["about"]:
        click.echo(
            f"{name} was listed before resources and prompts could be served; list it again with: "
            f"deedbook mcp refresh {name}", err=True,
        )  # fmt: skip


def _take_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Return duplicates of standard input and output.

    From now on all other code reads empty input, and its output goes to standard error.
    """
    sys.stdout.flush()
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, sink
