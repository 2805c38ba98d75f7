"""The program ``deedbook-verify``: verifies a state folder, or one ledger, without a workspace.

It reads no settings and no key ring; it trusts only the keys that it is given. Exit status: 0 sound, 1 failed, 2 wrong
usage, 4 not sound, 130 interrupted.
"""

import json
import sys
from pathlib import Path
from typing import Final, NoReturn

import click

from deedbook.format.errors import CODES, DeedbookError
from deedbook.format.files import Folder
from deedbook.format.paths import LEDGER_FILE, is_state
from deedbook.format.terminal import plain
from deedbook_audit.upcasting.naming import split_source
from deedbook_audit.upcasting.recognition import require_form

from .selection import Selection, StateFolder, select_all
from .trust import TrustInputs
from .verdicts import Output, build_document, print_verification
from .whole import verify

UNSOUND: Final = 4
INTERRUPTED: Final = 130


@click.command("deedbook-verify", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("state")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--checkpoint", multiple=True, metavar="FILE", help="Check the log against a checkpoint that you kept.")
@click.option(
    "--witness", multiple=True, metavar="PLACE", help="Ask the witness at a folder or URL for its newest checkpoint."
)
@click.option("--witness-key", multiple=True, metavar="KEY", help="Believe the witness with this key.")
@click.option("--plugins", is_flag=True, help="Ask pure gates of plugins again, where exactly their code is installed.")
@click.option("--jobs", default=1, metavar="N", type=click.IntRange(1, 64), help="Use N processes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with a versioned schema.")
@click.version_option(package_name="deedbook-audit", message="%(prog)s %(version)s")
def program(
    state: str, keys: tuple[str, ...], *, plugins: bool, jobs: int, as_json: bool, **given: tuple[str, ...]
) -> int:
    """Verify STATE: a state folder, the folder of a session, or the file of a ledger.

    Each KEY is a public key of the log, or a file that holds one. No settings and no key ring are read.
    """
    selection = _select(state)
    if selection.source is None and (unused := [*keys, *given["witness_key"]]):
        raise click.UsageError(f"{unused[0]} is for a log, and one ledger has none; name its state folder")
    inputs = TrustInputs(keys, given["witness_key"], given["checkpoint"], given["witness"])
    found = verify(selection, inputs, plugins=plugins, jobs=jobs)
    if as_json:
        sys.stdout.write(f"{json.dumps(build_document(found))}\n")
    else:
        print_verification(found, Output(), alone=selection.source is None)
    return 0 if found.verdict.sound else UNSOUND


def main() -> NoReturn:
    """Run the program and exit with its status, never with a traceback."""
    try:
        status = _run_program()
        sys.stdout.flush()
    except BrokenPipeError:
        status = 1
    sys.exit(status)


def _run_program() -> int:
    try:
        outcome = program.main(standalone_mode=False)
    except click.ClickException as problem:
        _print_error(problem.format_message())
        if isinstance(problem, click.UsageError) and problem.ctx:
            usage = " ".join(problem.ctx.get_usage().split())
            sys.stderr.write(f"{usage}\nHelp:  {problem.ctx.command_path} --help\n")
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except DeedbookError as problem:
        for error in problem.errors:
            _print_error(f"{error} [{error.code}]")
        known = CODES.get(problem.errors[0].code)
        return known.exit if known else 1
    except BrokenPipeError:
        raise
    except OSError as problem:
        _print_error(f"{problem.strerror or problem}: {problem.filename or ''}".rstrip(": "))
        return 1
    return outcome if isinstance(outcome, int) else 0


def _print_error(text: str) -> None:
    sys.stderr.write(f"error: {plain(text)}\n")


def _select(name: str) -> Selection:
    """Select *name*; raises `LedgerError` (``NOT_A_LEDGER``), `FileRefused`, `click.BadParameter`."""
    place = Path(name).absolute()
    if is_state(place):
        return select_all(StateFolder(place))
    file, _ = split_source(place / LEDGER_FILE if place.is_dir() else place)
    if not file.exists():
        raise click.BadParameter(f"there is no ledger {name!r}", param_hint="STATE")
    with Folder.at(file.parent) as folder, folder.open(file.name) as ledger:
        require_form(ledger, name)
    return Selection([file])
