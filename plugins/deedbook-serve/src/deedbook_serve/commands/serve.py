"""Serve the workspace to clients: the long-lived process."""

from typing import Final

import click

from deedbook.cli.common import GlobalOptions, announce, display_path, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say
from deedbook_serve.deadline import Deadline

SECTION: Final = "Serve"

SHUTDOWN_LIMIT: Final = 60.0
"""Seconds, beyond the drain time, after which a stopping process is ended."""


@data_command
@click.command("serve")
@profile_option
@click.option("--status", is_flag=True, help="Ask the process that serves this workspace how it is, and serve nothing.")
@click.option("--check", is_flag=True, help="Open the workspace and say what would be served, and serve nothing.")
@click.option(
    "--drain", type=click.FloatRange(0, 3600), default=10.0, show_default=True, metavar="SECONDS",
    help="What runs may take so long when the process is told to stop.",
)  # fmt: skip
@click.option(
    "--grace", type=click.FloatRange(0.1, 86400), default=60.0, show_default=True, metavar="SECONDS",
    help="A session whose client went away is kept so long.",
)  # fmt: skip
@click.option(
    "--connections", type=click.IntRange(1, 10_000), default=512, show_default=True, metavar="N",
    help="So many are attended to at once.",
)  # fmt: skip
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions, profile: str | None, status: bool, check: bool, drain: float, grace: float, connections: int
) -> int:
    """Serve the workspace until SIGTERM or Ctrl-C; then what runs may finish."""
    if status:
        return _print_status(asked)
    from time import time

    from deedbook.kernel import open_kernel
    from deedbook_serve.serving.process import Limits, serve

    last = Deadline(drain + SHUTDOWN_LIMIT, "the runtime")
    with last, open_kernel(asked.workspace, profile=profile) as kernel:
        announce(kernel.active_charter)
        if check:
            say(f"charter {kernel.active_charter.charter.digest[:12]}: {len(kernel.bindings.abilities)} abilities")
            return 0
        limits = Limits(connections=connections, grace=grace, drain=drain)
        serve(kernel, limits=limits, ready=message, clock=time, stopping=last.begin)
        kernel.close("stopped")
    return 0


def _print_status(asked: GlobalOptions) -> int:
    from deedbook.workspace.workspace import read_workspace
    from deedbook_serve.client import Runtime

    place = read_workspace(asked.workspace).state
    with Runtime(place) as runtime:
        health = runtime.health()
    if asked.json:
        as_json({"schema_version": "v1", **health})
    else:
        say(f"process {health['pid']} serves {display_path(place)}: {health['sessions']} sessions of clients, "
            f"{health['agents']} of coding agents, {health['connections']} connections")  # fmt: skip
    return 0
