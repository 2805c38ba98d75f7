"""Print a session's story, or render it as a page."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, display_path, json_option, span_option
from deedbook.cli.output import as_json, data_command, message, say
from deedbook_inspect.reading import UNSOUND, types_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deedbook_inspect.replaying.page import VerificationResult

SECTION: Final = "Record"
_STYLE: Final = Path(__file__).parents[1] / "pages" / "replay.css"

MOST_BYTES = 256 * 1024 * 1024
"""A larger ledger is not verified first."""


@data_command
@click.command("replay")
@click.argument("session", shell_complete=completing.sessions)
@click.option("--html", is_flag=True, help="Print one self-contained page instead, or write it to --out.")
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the page to this file.")
@span_option
@json_option
@click.pass_obj
def command(asked: GlobalOptions, session: str, html: bool, out: str | None, span: str | None) -> int:
    """Print the story of SESSION (an id, or a file) from its ledger; `--json` prints the resulting state.

    The first line is the verdict of the verification; the exit status is 4 if the ledger is not sound. Nothing is
    called again.
    """
    from deedbook.format.folds import SnapshotFold, fold
    from deedbook.format.terminal import plain
    from deedbook_audit.commands.ledgers import session_file
    from deedbook_audit.upcasting.reader import read
    from deedbook_inspect.event_tree import subtree, transcript
    from deedbook_inspect.replaying.cycles import CycleFold
    from deedbook_inspect.replaying.handovers import HandoverFold

    if out is not None and not html:
        raise click.UsageError("--out is for --html; write `deedbook replay SESSION --html --out FILE`")
    if html and asked.json:
        raise click.UsageError("--html is a page and --json is the state; say one of them")
    if span is not None and (html or asked.json):
        raise click.UsageError("--span is for the story; leave --html and --json out")
    place = session_file(asked.workspace, session)
    checked = _verify(asked, place)
    status = UNSOUND if checked.sound is False else 0
    if html:
        _write_page(place, checked, out)
        return status
    if asked.json:
        found = fold(SnapshotFold(types_in(place)), read(place)).as_json()
        cycles = [each.as_json() for each in fold(CycleFold(), read(place))]
        told = {"workflows": cycles} if cycles else {}
        agents = fold(HandoverFold(), read(place))
        as_json({**found, "agents": agents, **told, "verified": checked.sound, "verdict": checked.summary})
        return status
    say(plain(checked.summary))
    for line in transcript(subtree(read(place), span) if span else read(place), types_in(place)):
        say(line)
    return status


def _verify(asked: GlobalOptions, place: Path) -> "VerificationResult":
    """Return the result of verifying the ledger at *place*."""
    from deedbook_audit.commands.naming import own_keys, select_one
    from deedbook_audit.report import UNHASHED, UNWITNESSED
    from deedbook_audit.upcasting.naming import split_source
    from deedbook_audit.whole import verify
    from deedbook_inspect.replaying.page import VerificationResult

    file, _ = split_source(place)
    if file.stat().st_size > MOST_BYTES:
        return VerificationResult(None, "not verified: the ledger is large; `deedbook verify` checks it")
    found = verify(select_one(asked.workspace, str(file)), own_keys=own_keys, named=display_path)
    verdict = found.verdict
    lines = [line for each in found.reports for line in list(each.lines())[:-1] if line not in (UNWITNESSED, UNHASHED)]
    sound = None if verdict.kind == "unhashed" else verdict.sound
    return VerificationResult(sound, verdict.summary, (*found.trust.notes, *lines), verdict.kind == "checkpointed")


def _write_page(place: Path, checked: "VerificationResult", out: str | None) -> None:
    """Print or write the page of the ledger at *place*."""
    from deedbook.format.folds import fold
    from deedbook_audit.upcasting.reader import read
    from deedbook_inspect.replaying.account import AccountFold
    from deedbook_inspect.replaying.page import MOST_EVENTS, render_page

    events = read(place)
    account = fold(AccountFold(types_in(place)), islice(events, MOST_EVENTS))
    left_out = sum(1 for _ in events)
    style = _STYLE.read_text(encoding="utf-8")
    parts = render_page(_find_name(place), account, checked, style, left_out=left_out)
    if out is None:
        for part in parts:
            say(part, nl=False)
        return
    _write_file(Path(out), parts)
    message(f"the page is {display_path(Path(out).absolute())}")


def _write_file(place: Path, parts: "Iterator[str]") -> None:
    from deedbook.format.files import Folder

    with Folder.at(place.absolute().parent) as folder:
        folder.replace(place.name, "".join(parts).encode(), mode=0o644)


def _find_name(place: Path) -> str:
    """Return the id of the session at *place*; for a ledger of an older form the name of its file."""
    from deedbook.format.errors import DeedbookError
    from deedbook_audit.commands.ledgers import ledger_identity

    try:
        return ledger_identity(place)[0]
    except DeedbookError:
        return place.stem
