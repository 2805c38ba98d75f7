"""The command ``deedbook``: data on standard output, messages on standard error.

Exit status: 0 success, 1 failed, 2 wrong usage, 3 denied, 4 the ledger is not sound, 130 interrupted. Each command has
a module of its own, imported when it is called, and imports what it needs when it runs, so that ``--help`` is quick and
imports no plugin. Commands of other distributions are found through entry points.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from deedbook.plugins.commands import find_commands

from .common import GlobalOptions, SuggestingGroup, as_command
from .completing import VARIABLE
from .output import as_json, data_command, format_error, message, report_error
from .process import flush, hold_streams, install_signal_handlers, leave

if TYPE_CHECKING:
    from deedbook.format.errors import DeedbookError, DomainError

TRACEBACK: Final = "DEEDBOOK_TRACEBACK"
"""If this environment variable is set, an internal error prints its traceback."""
INTERRUPTED: Final = 130

OWN: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Begin": {},
        "Do": {
            "run": "Take a request through hooks, skill and roles to an answer.",
            "resume": "Go on with a run that waits, or was interrupted.",
            "call": "Use one ability through the door, in a session of its own.",
        },
        "Workspace": {},
        "Record": {},
        "Proof": {"ledger": "Sign, import, correct and erase: what is done with ledgers."},
        "Serve": {},
    }
)
"""The kernel's own commands by section, with a line of help each. They win over commands of distributions."""

OWN_NAMES: Final = tuple(name for section in OWN.values() for name in section)


def sections() -> dict[str, dict[str, str]]:
    """Return every command with its line of help, by section, the kernel's own first."""
    listed = {title: dict(commands) for title, commands in OWN.items()}
    for name, offered in find_commands().items():
        if name not in OWN_NAMES and "." not in name:
            found = offered.describe()
            listed.setdefault(found.section, {})[name] = found.line
    return {title: commands for title, commands in listed.items() if commands}


class _Commands(SuggestingGroup):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*OWN_NAMES, *(name for name in find_commands() if "." not in name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in OWN_NAMES:
            module = importlib.import_module(f".{cmd_name}", __package__)
            command: click.Command = module.command
            return command
        offered = find_commands().get(cmd_name)
        return as_command(offered) if offered and "." not in cmd_name else None

    def is_external(self, name: str) -> bool:
        return name not in OWN_NAMES

    @property
    def prefix(self) -> str:
        return ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = sections()
        width = max(len(name) for commands in listed.values() for name in commands)
        for title, commands in listed.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])


@data_command
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-C", "--workspace", default=".", metavar="DIR", help="Look for the workspace here and above.")
@click.version_option(package_name="deedbook", message="%(prog)s %(version)s")
@click.pass_obj
def program(options: GlobalOptions, workspace: str) -> None:
    """Every capability of an agent passes one door and leaves a line in a tamper-evident ledger."""
    options.workspace = workspace


def main() -> None:
    """Run the command line and exit with its status; never print a traceback."""
    hold_streams()
    install_signal_handlers()
    leave(flush(_status(GlobalOptions())))


def _status(options: GlobalOptions) -> int:
    try:
        outcome = program.main(standalone_mode=False, obj=options, complete_var=VARIABLE)
    except click.ClickException as problem:
        return _report_usage_error(problem, options)
    except (click.Abort, KeyboardInterrupt):
        report_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    except Exception as problem:  # noqa: BLE001 - every failure is reported in one line
        return _report_problem(problem, options)
    return outcome if isinstance(outcome, int) else 0


def _report_problem(problem: Exception, options: GlobalOptions) -> int:
    """Report why a command failed; raises *problem* if it is an internal error and `TRACEBACK` is set."""
    from deedbook.format.errors import DeedbookError, fault

    if isinstance(problem, DeedbookError):
        return _report_failure(problem, options)
    if isinstance(problem, OSError):
        why = f"{problem.strerror or problem}: {problem.filename or ''}".rstrip(": ")
        report_error(why)
        _as_json(options, [fault("FAILED", why)])
        return 1
    return _report_internal_error(problem, options)


def _report_internal_error(problem: Exception, options: GlobalOptions) -> int:
    """Report a missing distribution or an internal error; raises *problem* if `TRACEBACK` is set."""
    from deedbook.format.errors import BindingError, fault

    missing = (problem.name or "").partition(".")[0] if isinstance(problem, ModuleNotFoundError) else ""
    if missing.startswith("deedbook_"):
        owner = missing.replace("_", "-")
        why = f"this needs {owner}, which is not installed: pip install {owner}"
        return _report_failure(BindingError(fault("PLUGIN_MISSING", why)), options)
    if os.environ.get(TRACEBACK):
        raise problem
    why = f"internal error: {type(problem).__name__}: {problem}; {TRACEBACK}=1 shows where, please report it"
    report_error(why)
    _as_json(options, [fault("FAILED", why)])
    return 1


def _report_usage_error(problem: click.ClickException, options: GlobalOptions) -> int:
    """Report a wrong use of the command, and where to find help."""
    from deedbook.format.errors import fault

    ctx = problem.ctx if isinstance(problem, click.UsageError) else None
    if isinstance(problem, click.exceptions.NoArgsIsHelpError) and ctx:
        click.echo(ctx.get_help(), err=True)
        return problem.exit_code
    code, why = getattr(problem, "code", "USAGE"), problem.format_message().replace("\n\t", " ")  # click lists choices
    if isinstance(problem, click.NoSuchOption) and ctx and ctx.parent is None:
        why = f"no such option here; options of a command stand after it: deedbook COMMAND {problem.option_name}"
    report_error(f"{why} [{code}]" if code != "USAGE" else why)
    if ctx:
        message(" ".join(ctx.get_usage().split()))
        message(f"Help:  {ctx.command_path} --help")
    options.json = options.json or "--json" in sys.argv  # the error may precede the reading of the option
    _as_json(options, [fault(code, why)])
    return problem.exit_code


def _report_failure(problem: "DeedbookError", options: GlobalOptions) -> int:
    """Report every error; also as JSON with ``--json``."""
    from deedbook.format.errors import CODES, fault

    for error in problem.errors:
        report_error(format_error(error))
    _as_json(options, problem.errors)
    first = problem.errors[0] if problem.errors else fault("USAGE", "no reason was given")
    known = CODES.get(first.code)
    return known.exit if known else 1


def _as_json(options: GlobalOptions, errors: Sequence["DomainError"]) -> None:
    """Print the errors as the only JSON document with ``--json``."""
    if options.json:
        told = [{"code": error.code, "message": error.message, "place": error.place} for error in errors]
        with suppress(OSError):  # standard output may be what failed
            as_json({"schema_version": "v1", "ok": False, "errors": told})
