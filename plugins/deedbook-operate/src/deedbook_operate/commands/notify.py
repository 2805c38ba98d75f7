"""Tell people what waits for them."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, SuggestingGroup
from deedbook.cli.output import data_command, message, report_error

if TYPE_CHECKING:
    from deedbook.contract import Object
    from deedbook.workspace.declarations import Workspace

SECTION: Final = "Serve"


@data_command
@click.group("notify", cls=SuggestingGroup)
def command() -> None:
    """Tell people what waits for them, and what is frozen.

    The targets (webhooks, mail addresses, commands) are in `features: {notify: {targets: …}}`.
    """


@command.command("run", short_help="Send what was not sent yet, until interrupted.")
@click.option("--once", is_flag=True, help="Send what there is, and end; 1 if a target failed.")
@click.pass_obj
def run(options: GlobalOptions, *, once: bool) -> int:
    """Send each target what it was not told yet: requests that wait for a person, freezes and thaws.

    A message is sent at least once. One that cannot be delivered is tried again.
    """
    from deedbook.workspace.site import Site
    from deedbook.workspace.trust import check_programs, open_state
    from deedbook.workspace.workspace import read_workspace
    from deedbook_operate.notifying.delivery import build_targets
    from deedbook_operate.notifying.runner import Runner

    workspace = read_workspace(options.workspace)
    site = Site.of(workspace)
    check_programs(_read_settings(workspace), workspace.root)
    targets = build_targets(_read_settings(workspace), site.secret_values())
    mask = site.sealer().mark_secrets

    def report(target: str, why: str) -> None:
        report_error(mask(f"target {target}: {why}"))

    with open_state(workspace.root, workspace.state, create=True) as state:
        if not once:
            message(f"telling {', '.join(targets)}; end with Ctrl-C")
        runner = Runner(state, workspace.root.name or "/", targets, report)
        try:
            sent = runner.run(once=once)
        except KeyboardInterrupt:
            if once:
                raise
            return 0  # Ctrl-C and SIGTERM are how it ends
    for name, count in sent.items():
        if count >= 0:
            message(f"target {name}: {count} {'message' if count == 1 else 'messages'} sent")
    return 1 if any(count < 0 for count in sent.values()) else 0


def _read_settings(workspace: "Workspace") -> "Object":
    """Return the targets as the compiled charter has them; raises `BindingError`."""
    from deedbook.charter.compiler import compile_charter
    from deedbook.format.errors import BindingError, fault
    from deedbook.format.release import VERSION
    from deedbook.plugins.plugins import discover
    from deedbook_operate.notifying.feature import FEATURE

    if FEATURE not in workspace.features:
        why = "the workspace names no targets: add features: {notify: {targets: {…}}} to .system/deedbook.yaml"
        raise BindingError(fault("NOTIFY_FAILED", why))
    document: Any = compile_charter(workspace, discover(), kernel=VERSION).document
    settings: Object = document["features"][FEATURE]["settings"]
    return settings
