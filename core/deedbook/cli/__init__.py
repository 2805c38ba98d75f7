"""The command ``deedbook``: data on standard output, messages on standard error.

Exit status: 0 fine, 1 failed, 2 wrong usage, 3 denied, 4 the ledger is not sound, 130 interrupted. Each command
stands in a module of its own and is imported when it is called, and imports what it needs when it runs, so that
``--help`` is quick and imports no plugin.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import click

from deedbook.errors import CODES, DeedbookError, DomainError, fault

from .common import Asked, Suggesting
from .completing import VARIABLE
from .output import as_json, complain, message, worded
from .process import flush, hold_streams, leave, take_signals

TRACEBACK: Final = "DEEDBOOK_TRACEBACK"
"""Set to anything, this environment variable shows where an internal error came from."""
INTERRUPTED: Final = 130

GROUPS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "Begin": {
            "init": "Begin a workspace: one file, or the whole starter.",
            "new": "Begin a plugin of your own: `new plugin`.",
            "doctor": "Check all that Deedbook stands on, and how to mend it.",
            "plugins": "List what is installed, and who uses it.",
            "completion": "Print the completion script for bash, zsh or fish.",
        },
        "Do": {
            "run": "Take a request through hooks, skill and roles to an answer.",
            "call": "Use one ability through the door, in a session of its own.",
            "tasks": "List the tasks; make, run, change, delete or decide one.",
            "approvals": "Show what waits for a person; approve, deny, or run it.",
            "memory": "Show what is remembered and why; propose, retract, import.",
            "fork": "Go on from a point in a session's past, without doing it again.",
        },
        "Workspace": {
            "abilities": "List what the workspace declares; `abilities show`.",
            "registry": "Check what the workspace declares: `registry lint`.",
            "route": "Rank abilities and documents for a prompt, with reasons.",
            "skills": "List the skills; `skills show`, `skills lint`.",
            "agents": "List the agents that have a card, and the roles.",
            "hooks": "List the hooks, and test them.",
            "policy": "List the policies, and test them.",
            "explain": "Say what would decide about a call, and where it stands.",
            "whatif": "Judge recorded calls under another charter.",
            "lock": "Compile the charter, show what changed, and pin it.",
        },
        "Record": {
            "sessions": "List the sessions; `sessions close` ends an interrupted one.",
            "tree": "Show what caused what in a session.",
            "replay": "Tell a session's story, or make a page of it; nothing is called.",
            "stats": "Count calls, time, tokens, cost, denials; for Prometheus, too.",
            "export": "Write a session in another form.",
            "otel": "Send spans to an OpenTelemetry collector.",
            "processes": "Show who wrote: processes, their runs and sessions.",
            "workdocs": "Write the pages of sessions anew from their ledgers.",
        },
        "Proof": {
            "verify": "Check ledgers: bytes, structure, decisions, and the log.",
            "prove": "Prove that an event stands in the log, or that it only grew.",
            "ledger": "Sign, import, correct and erase: what is done with ledgers.",
            "keys": "Make and show keys: of approvers, and of the log.",
            "witness": "Be a witness for logs: cosign what goes on from what was seen.",
        },
        "Serve": {
            "serve": "Serve the workspace to clients: the long-lived process.",
            "mcp": "Speak the Model Context Protocol: with servers, and as one.",
            "bridge": "Answer coding agents' hooks; `bridge install`, `status`, `test`.",
        },
    }
)
"""Every command by what it is for, and what it does in a sentence."""

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {name: sentence for group in GROUPS.values() for name, sentence in group.items()}
)
"""Every command, and what it does in a sentence."""


class _Commands(Suggesting):
    """Imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{cmd_name}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), sentence) for name, sentence in group.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-C", "--workspace", default=".", metavar="DIR", help="Look for the workspace here and above.")
@click.version_option(package_name="deedbook", message="%(prog)s %(version)s")
@click.pass_obj
def program(asked: Asked, workspace: str) -> None:
    """Every capability of an agent passes one door and leaves a line in a tamper-evident ledger."""
    asked.workspace = workspace


def main() -> None:
    """Run the command line and exit with its status; whatever happens, no traceback."""
    hold_streams()
    take_signals()
    leave(flush(_status(Asked())))


def _status(asked: Asked) -> int:
    try:
        outcome = program.main(standalone_mode=False, obj=asked, complete_var=VARIABLE)
    except click.ClickException as problem:
        return _misused(problem, asked)
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except DeedbookError as problem:
        return _failed(problem, asked)
    except BrokenPipeError:
        return 1
    except OSError as problem:
        why = f"{problem.strerror or problem}: {problem.filename or ''}".rstrip(": ")
        complain(why)
        _as_json(asked, [fault("FAILED", why)])
        return 1
    except Exception as problem:
        if os.environ.get(TRACEBACK):
            raise
        why = f"internal error: {type(problem).__name__}: {problem}; {TRACEBACK}=1 shows where, please report it"
        complain(why)
        _as_json(asked, [fault("FAILED", why)])
        return 1
    return outcome if isinstance(outcome, int) else 0


def _misused(problem: click.ClickException, asked: Asked) -> int:
    """Say what is wrong with how the command was called, and where to look up how it is."""
    ctx = problem.ctx if isinstance(problem, click.UsageError) else None
    if isinstance(problem, click.exceptions.NoArgsIsHelpError) and ctx:
        click.echo(ctx.get_help(), err=True)
        return problem.exit_code
    code = getattr(problem, "code", "USAGE")
    complain(f"{problem.format_message()} [{code}]" if code != "USAGE" else problem.format_message())
    if ctx:
        message(" ".join(ctx.get_usage().split()))
        message(f"Help:  {ctx.command_path} --help")
    asked.json = asked.json or "--json" in sys.argv  # what is wrong may have been found before the option was read
    _as_json(asked, [fault(code, problem.format_message())])
    return problem.exit_code


def _failed(problem: DeedbookError, asked: Asked) -> int:
    """Say everything that is wrong; as JSON, too, where JSON was asked for."""
    for error in problem.errors:
        complain(worded(error))
    _as_json(asked, problem.errors)
    first = problem.errors[0] if problem.errors else fault("USAGE", "no reason was given")
    known = CODES.get(first.code)
    return known.exit if known else 1


def _as_json(asked: Asked, errors: Sequence[DomainError]) -> None:
    """Print what is wrong as the one JSON document, where JSON was asked for."""
    if asked.json:
        told = [{"code": error.code, "message": error.message, "place": error.place} for error in errors]
        with suppress(OSError):  # standard output may be what failed
            as_json({"schema_version": "v1", "ok": False, "errors": told})
