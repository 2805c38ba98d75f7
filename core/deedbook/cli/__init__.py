"""The command ``deedbook``: data on standard output, messages on standard error.

Exit status: 0 fine, 1 failed, 2 wrong usage, 3 denied, 4 the ledger is not sound, 130 interrupted. Each command
stands in a module of its own and is imported when it is called, so that ``--help`` is quick and imports no plugin.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import click

from deedbook.errors import CODES, DeedbookError

from .output import complain

TRACEBACK: Final = "DEEDBOOK_TRACEBACK"
"""Set to anything, this environment variable shows where an internal error came from."""

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run": "Take a request through hooks, skill and roles to an answer.",
        "call": "Use one ability through the door, in a session of its own.",
        "abilities": "List what the workspace declares.",
        "sessions": "List the sessions of the workspace; `sessions close` ends an interrupted one.",
        "verify": "Check ledgers: bytes and structure.",
        "replay": "Tell a session's story from its ledger; nothing is called again.",
        "tree": "Show what caused what in a session.",
        "export": "Write a session in another form.",
        "lock": "Compile the charter, show what changed, and pin it.",
    }
)
"""Every command, and what it does in a sentence."""


class _Commands(click.Group):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}", __package__)
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            from deedbook.schema import suggest

            raise click.UsageError(f"there is no command {args[0]!r}{suggest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-C", "--workspace", default=".", metavar="DIR", help="Look for the workspace here and above.")
@click.version_option(package_name="deedbook")
@click.pass_context
def program(ctx: click.Context, workspace: str) -> None:
    """Every capability of an agent passes one door and leaves a line in a tamper-evident ledger."""
    ctx.obj = workspace


def main() -> None:
    """Run the command line and exit with its status; whatever happens, no traceback."""
    sys.exit(_status())


def _status() -> int:
    try:
        outcome = program.main(standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return 130
    except DeedbookError as problem:
        for error in problem.errors:
            complain(f"{error} [{error.code}]")
        known = CODES.get(problem.error.code)
        return known.exit if known else 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        complain(f"{problem.strerror or problem}: {problem.filename or ''}".rstrip(": "))
        return 1
    except Exception as problem:
        if os.environ.get(TRACEBACK):
            raise
        complain(f"internal error: {type(problem).__name__}: {problem}; {TRACEBACK}=1 shows where, please report it")
        return 1
    return outcome if isinstance(outcome, int) else 0
