"""Deny calls at once, or show what is frozen."""

from typing import TYPE_CHECKING, Any, Final

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, data_command, message, say, table

if TYPE_CHECKING:
    from deedbook_operate.freezes import Freeze
    from deedbook_operate.freezing import FreezeReport, FreezeStatus

SECTION: Final = "Do"
_UNSOUND: Final = 4
as_option = click.option("--as", "principal", metavar="NAME", help="Act as this principal; sign with its key.")


@data_command
@click.command("freeze")
@click.option("--agent", metavar="NAME", default="", help="Freeze the calls of an agent, a role or a person.")
@click.option("--ability", metavar="GLOB", default="", help="Freeze the calls of these abilities.")
@click.option("--all", "every", is_flag=True, help="Freeze every call.")
@click.option("--reason", metavar="TEXT", default="", help="Say why; denied calls show it.")
@click.option("--partial", is_flag=True, help="Freeze although some open sessions do not check it.")
@as_option
@json_option
@click.pass_obj
def command(
    options: GlobalOptions, agent: str, ability: str, reason: str, principal: str | None, *, every: bool, partial: bool
) -> int:
    """Deny calls at once, or show what is frozen.

    A freeze covers every process on the workspace, until `deedbook thaw`. Calls that wait for a person are also denied.
    Calls that began before are listed: they go on. Without a target, the command shows what is frozen.
    """
    from deedbook_operate.freezing import open_freezer

    targets = [bool(agent), bool(ability), every]
    if not any(targets):
        if reason or partial:
            raise click.UsageError("name what to freeze: --agent NAME, --ability GLOB or --all")
        with open_freezer(options.workspace) as freezer:
            return _show(options, freezer.status())
    if sum(targets) > 1:
        raise click.UsageError("name one target: --agent NAME, --ability GLOB or --all")
    if not reason:
        raise click.UsageError("say why with --reason TEXT")
    with open_freezer(options.workspace) as freezer:
        report = freezer.freeze(agent, ability, reason, principal, partial=partial)
        status = freezer.status()
        for note in freezer.notes:
            message(note)
    return _report(options, report, status)


def print_state(status: "FreezeStatus", **more: Any) -> None:
    """Print the freezes in force as JSON, and *more* members."""
    freezes = [each.as_json() for each in status.freezes]
    as_json({"schema_version": "v1", "freezes": freezes, "sound": not status.unsound, **more})


def print_others(status: "FreezeStatus", but: "Freeze | None" = None) -> None:
    """Print the freezes that are also in force."""
    for each in status.freezes:
        if each != but:
            message(f"also in force: {each} ({each.id[:8]})")


def _show(options: GlobalOptions, status: "FreezeStatus") -> int:
    if options.json:
        print_state(status)
    elif status.freezes:
        table((each.target, each.by, each.at, each.reason, each.id[:8]) for each in status.freezes)
    elif not status.unsound:
        say("nothing is frozen")
    if status.unsound:
        message(f"every call is denied, because the record of freezes is not sound: {status.unsound}")
        message("to write it again: deedbook thaw, or deedbook freeze with a target")
    elif status.unrecorded:
        message("the newest change is in force and not yet in the ledger; repeat the command that made it")
    return _UNSOUND if status.unsound else 0


def _report(options: GlobalOptions, report: "FreezeReport", status: "FreezeStatus") -> int:
    if options.json:
        lists = {name: list(getattr(report, name)) for name in ("running", "ended", "not_covered")}
        print_state(status, frozen=report.freeze.as_json(), **lists)
        return 0
    message(f"{report.freeze} ({report.freeze.id[:8]})")
    print_others(status, report.freeze)
    for each in report.not_covered:
        message(f"not covered, and goes on: {each}")
    for each in report.ended:
        message(f"request {each} is withdrawn")
    if report.running:
        message("these calls began before, and still run:")
        table((each["name"], each["principal"], each["since"], each["session"]) for each in report.running)
    return 0
