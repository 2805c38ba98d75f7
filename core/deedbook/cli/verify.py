"""``deedbook verify``: check ledgers with a reader that knows the format and not the writer."""

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import click

from . import completing
from .common import Asked, json_option, shown
from .output import as_json, complain, say
from .proof import check_proof

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deedbook.approvals.consents import Approvers
    from deedbook.verification.heads import Gap, Head
    from deedbook.verification.report import Report
    from deedbook.workspaces.declarations import Workspace

UNSOUND = 4


@attrs.frozen
class _Chosen:
    """What is to be checked: the *files*, what is *lost* of those that were recorded, sessions that never began."""

    files: "Sequence[Path]"
    lost: "Sequence[Gap]" = ()
    empty: "Sequence[str]" = ()


@click.command("verify")
@click.argument("ledger", required=False, shell_complete=completing.sessions)
@click.option(
    "--proof", metavar="FILE", help="Check the proof in FILE, which `deedbook prove` printed; needs no workspace."
)
@click.option("--log-key", multiple=True, metavar="KEY", help="Believe this public key of a log, or the one in a file.")
@click.option("--witness-key", multiple=True, metavar="KEY", help="Believe the witness with this key.")
@json_option
@click.pass_obj
def command(
    asked: Asked, ledger: str | None, proof: str | None, log_key: tuple[str, ...], witness_key: tuple[str, ...]
) -> int:
    """Check LEDGER (a session's id, or a file), or every ledger of the workspace: bytes, then structure.

    Of sessions of the workspace it is also checked that nothing of what its own ledger recorded of them is missing.
    """
    if proof:
        if ledger:
            raise click.UsageError("--proof checks a proof and no LEDGER")
        return check_proof(asked, proof, log_key, witness_key)
    from deedbook.schema import Schemas, data_folder
    from deedbook.verify import verify_file

    chosen = _one(asked.workspace, ledger) if ledger else _all(asked.workspace)
    schemas = Schemas.load(data_folder("schemas"))
    approvers = _approvers(asked.workspace)
    reports = [verify_file(shown(place), schemas=schemas, approvers=approvers) for place in chosen.files]
    sound = not chosen.lost and all(report.sound for report in reports)
    if asked.json:
        missing = [_as_json(gap) for gap in chosen.lost]
        told = {"reports": [report.as_json() for report in reports], "missing": missing, "empty": list(chosen.empty)}
        as_json({"schema_version": "v1", "sound": sound, **told})
    elif ledger:
        _tell_one(reports, chosen)
    else:
        _tell_all(reports, chosen)
    return 0 if sound else UNSOUND


def _approvers(workspace: str) -> "Approvers | None":
    """Return how the approvers of a charter are found; ``None`` where there is no workspace."""
    from deedbook.approvals.requests import approvers
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.kernel import read_workspace
    from deedbook.store import Store

    try:
        state = read_workspace(workspace).state
    except DeedbookError:  # a file needs no workspace
        return None

    def find(digest: str) -> "Mapping[str, str] | None":
        try:
            with Folder.at(state) as folder:
                charter = Store(folder).find(digest)
        except (DeedbookError, OSError):
            return None
        return approvers(charter.document["principals"]) if charter else None

    return find


# --- what is checked --------------------------------------------------------------------------------------------------


def _all(workspace: str) -> _Chosen:
    """Choose every ledger, and every session that the workspace ledger knows."""
    from deedbook.kernel import read_workspace
    from deedbook.verification.agreement import disagreements

    from .ledgers import own, session_ids

    source = read_workspace(workspace)
    heads = _heads(source)  # before the files: they only grow
    names = sorted({*session_ids(source), *heads})
    each = [_session(source, name, heads.get(name, ())) for name in names]
    lost = [*(gap for one in each for gap in one.lost), *disagreements(source.state, names, every=True)]
    files = [*([own(source)] if own(source).exists() else []), *(file for one in each for file in one.files)]
    return _Chosen(files, lost, [name for one in each for name in one.empty])


def _one(workspace: str, name: str) -> _Chosen:
    """Choose one ledger; if it is that of a session of this workspace, with what the workspace ledger knows of it."""
    from deedbook.errors import DeedbookError
    from deedbook.kernel import read_workspace
    from deedbook.verification.agreement import disagreements

    from .ledgers import session_file, session_named

    source = None
    with suppress(DeedbookError):  # a file needs no workspace
        source = read_workspace(workspace)
    heads = _heads(source) if source else {}
    identity = session_named(source, name, heads) if source else None
    if source is None or identity is None:
        return _Chosen([session_file(workspace, name)])
    chosen = _session(source, identity, heads.get(identity, ()))
    return attrs.evolve(chosen, lost=[*chosen.lost, *disagreements(source.state, [identity])])


def _heads(source: "Workspace") -> "Mapping[str, list[Head]]":
    """Return the heads of every session that the workspace ledger knows, as far as it can be read."""
    from deedbook.errors import DeedbookError
    from deedbook.verification.heads import recorded

    heads: dict[str, list[Head]] = {}
    with suppress(DeedbookError):  # its own verification says what is wrong with it
        for head in recorded(source.state):
            heads.setdefault(head.session, []).append(head)
    return heads


def _session(source: "Workspace", identity: str, heads: "Sequence[Head]") -> _Chosen:
    """Choose a session: what is lost of it, whether it never began, and else its file."""
    from deedbook.errors import DeedbookError
    from deedbook.files import Folder
    from deedbook.reader import is_empty, strays
    from deedbook.verification.heads import Gap, gaps, lost, unrecorded

    from .ledgers import ledger_of

    place = ledger_of(source, identity)
    files = [place] if place.exists() or place.is_symlink() else []
    try:
        missing = list(gaps(source.state, heads))
        with Folder.at(place.parent) as folder:
            if is_empty(folder) and (missing or not strays(folder)):
                return _Chosen([], missing, [] if missing else [identity])
        if files and not heads and (gap := unrecorded(source.state, identity)):
            return _Chosen(files, [gap])
        missing = missing if files or missing else [Gap(identity, "file", "a ledger beside what else is there", "none")]
    except (DeedbookError, OSError):  # the file's own verification says what is wrong with it
        missing = [] if files or not heads else [lost(heads)]
    return _Chosen(files, missing)


# --- what is said -----------------------------------------------------------------------------------------------------


def _as_json(gap: "Gap") -> dict[str, str]:
    return {"session": gap.session, "check": gap.check, "expected": gap.expected, "found": gap.found}


def _tell_one(reports: "Sequence[Report]", chosen: _Chosen) -> None:
    for report in reports:
        *lines, verdict = report.lines()
        for line in lines:
            say(line)
        say(f"{verdict}, taken by itself" if chosen.lost and report.sound else verdict)
    _tell_rest(chosen)


def _tell_all(reports: "Sequence[Report]", chosen: _Chosen) -> None:
    """Say what holds for all once, a line for each sound ledger, and everything about the others."""
    from deedbook.terminal import plain
    from deedbook.verification.report import UNWITNESSED

    if reports or chosen.lost:
        say(UNWITNESSED)
    elif not chosen.empty:
        say("no ledgers yet")
    for report in reports:
        if report.sound:
            say(plain(f"sound  {report.file}: {report.events} events, {report.state}"))
    broken = [report for report in reports if not report.sound]
    for report in broken:
        for line in (line for line in report.lines() if line != UNWITNESSED):
            say(line)
    if broken:
        complain(f"NOT SOUND: {len(broken)} of {len(reports)} ledger{'' if len(reports) == 1 else 's'}")
    _tell_rest(chosen)
    if reports and not broken and not chosen.lost:
        say(f"all {len(reports)} sound")


def _tell_rest(chosen: _Chosen) -> None:
    """Say what is lost, and which sessions never began."""
    from deedbook.terminal import plain

    for gap in chosen.lost:
        say(plain(f"missing  {gap}"))
    for name in chosen.empty:
        say(plain(f"empty  session {name}: nothing was ever recorded; `deedbook sessions close {name}` removes it"))
    if chosen.lost:
        count = len({gap.session for gap in chosen.lost})
        are = "1 session is" if count == 1 else f"{count} sessions are"
        complain(f"{are} NOT what the workspace ledger recorded")
