"""Judge recorded calls under another charter."""

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from deedbook.cli import completing
from deedbook.cli.common import GlobalOptions, announce, json_option, profile_option
from deedbook.cli.output import as_json, data_command, message, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deedbook.policy.charter import Charter
    from deedbook.workspace.declarations import Workspace
    from deedbook_inspect.rejudging.whatif import DecisionChange, WhatIf

SECTION: Final = "Workspace"

CHANGED = 1
_SHOWN = 12


@data_command
@click.command("whatif")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=completing.sessions)
@click.option("--system", "system", metavar="DIR", required=True, help="The workspace whose charter is tried.")
@click.option("--all", "everything", is_flag=True, help="Judge every session of this workspace again.")
@click.option("--limit", default=20, metavar="N", type=click.IntRange(0), help="List at most N changes; 0 lists all.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 also if something changed.")
@profile_option
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions,
    sessions: tuple[str, ...],
    system: str,
    profile: str | None,
    *,
    everything: bool,
    limit: int,
    exit_zero: bool,
) -> int:
    """Judge the decisions of SESSION (an id, its start, `last`, or a file) again, under another workspace's charter.

    Nothing is called, and nothing is written. The exit status is 1 if a decision changed.
    """
    from deedbook.kernel import bindings_for_judging
    from deedbook_audit.subjects import rejudge_decisions
    from deedbook_inspect.rejudging.whatif import WhatIf

    places = list_ledgers(asked.workspace, sessions, everything=everything)
    found = WhatIf(limit)
    with bindings_for_judging(_read_other(system, profile)) as bindings:
        for place in places:
            found.add(rejudge_decisions(place, bindings))
        charter = bindings.charter
    if asked.json:
        as_json({"schema_version": "v1", "charter": charter.digest, "sessions": len(places), **found.as_json()})
    else:
        _print_differences(asked.workspace, charter)
        print_result(found, len(places))
        message(f"charter {charter.digest} of {system}; nothing was called and nothing is changed")
    return CHANGED if (found.changed_count or found.subjects.changed_count) and not exit_zero else 0


def list_ledgers(workspace: str, sessions: "Sequence[str]", *, everything: bool) -> list[Path]:
    """Return the ledgers to read, each once; with --all those of sessions that have begun."""
    from deedbook.cli.ledgers import ledger_path, session_ids
    from deedbook.workspace.workspace import read_workspace
    from deedbook_audit.commands.ledgers import session_file

    if everything == bool(sessions):
        raise click.UsageError("name the sessions, or say --all")
    if not everything:
        return list(dict.fromkeys(session_file(workspace, name) for name in sessions))
    source = read_workspace(workspace)
    places = (ledger_path(source, name) for name in session_ids(source))
    return [place for place in places if os.path.lexists(place) and (not place.is_file() or place.stat().st_size)]


def _read_other(system: str, profile: str | None) -> "Workspace":
    """Read the other workspace in *system* itself, without a search in the folders above."""
    from deedbook.workspace.workspace import read_workspace

    place = Path(system)
    root = place.resolve().parent if place.name == ".system" else place
    if not (root / ".system").is_dir():
        raise click.BadParameter(f"{system} holds no .system", param_hint="--system")
    return read_workspace(root, profile)


def _print_differences(workspace: str, charter: "Charter") -> None:
    """Print what is looser or tighter in the other charter than in the one last in force here, if it is kept."""
    from deedbook.charter.changes import compare
    from deedbook.charter.locks import ActiveCharter
    from deedbook.charter.store import Store
    from deedbook.format.errors import BindingError, DeedbookError
    from deedbook.format.files import Folder
    from deedbook.workspace.workspace import read_workspace

    with suppress(DeedbookError, OSError), Folder.at(read_workspace(workspace).state) as state:
        store = Store(state)
        digest = store.current()
        try:
            current = store.find(digest) if digest else None
            if current:
                current.refuse_uncanonical()
        except BindingError as problem:
            message(f"the two charters cannot be compared: {problem}")
            return
        if current and current.digest != charter.digest:
            announce(ActiveCharter(charter, digest, compare(current.document, charter.document)))


def print_result(found: "WhatIf", sessions: int) -> None:
    """Print the changed decisions and the totals."""
    from deedbook.format.terminal import plain, pluralise
    from deedbook_inspect.rejudging.whatif import TOTALS

    for change in found.changes:
        say(plain(_format_change(change)))
    hidden = found.changed_count - len(found.changes)
    if hidden:
        say(f"and {hidden} more; --limit 0 lists all")
    for name, words in TOTALS.items():
        if found.totals[name] or name == "same":
            say(f"{found.totals[name]:>8}  {words}")
        if name == "undetermined":
            for why, number in found.reasons.most_common():
                say(plain(f"{number:>8}    {why}"))
    calls = pluralise(sum(found.totals.values()), "call")
    ways = (
        f"{found.directions['looser']} looser, {found.directions['tighter']} tighter"
        if found.changed_count
        else "nothing changed"
    )
    say(f"{calls} of {pluralise(sessions, 'session')} judged again: {ways}")
    if found.subjects.all:
        _print_subjects(found)


def _print_subjects(found: "WhatIf") -> None:
    from deedbook.format.terminal import plain, pluralise
    from deedbook_inspect.rejudging.subject_changes import SUBJECT_TOTALS, format_change

    subjects = found.subjects
    for change in subjects.changes:
        say(plain(format_change(change)))
    hidden = subjects.changed_count - len(subjects.changes)
    if hidden:
        say(f"and {hidden} more; --limit 0 lists all")
    for why, number in subjects.reasons.most_common():
        say(plain(f"{number:>8}    {why}"))
    told = ", ".join(
        f"{subjects.totals[name]} {words}" for name, words in SUBJECT_TOTALS.items() if subjects.totals[name]
    )
    say(f"{pluralise(subjects.all, 'decision')} about subjects judged again: {told}")


def _format_change(change: "DecisionChange") -> str:
    """Return a change in the words of ``deedbook lock``: its direction, its subject, and the deciding rule.

    The rule of a looser change is the one that refused before.
    """
    call, verdict = change.rejudged.call, change.rejudged.verdict
    assert verdict is not None
    lifted = change.direction == "looser" and call.by is not None
    by, reason = (call.by or {}, call.reason) if lifted else (change.find_decider(), verdict.reason or call.reason)
    maker = next((f"{kind} {by[kind]}" for kind in ("policy", "hook", "scope", "rule") if kind in by), "")
    place = by.get("rule") if isinstance(by.get("rule"), str) and maker != f"rule {by.get('rule')}" else by.get("place")
    details = ", ".join(str(part) for part in (maker, place, reason) if part)
    words = f"{call.outcome} → {change.now}" if change.rejudged.change != "rewritten" else "other arguments"
    who = f" for {call.principal}" if call.principal else ""
    why = f" ({'before: ' if lifted else ''}{details})" if details else ""
    return f"{change.direction:8}{call.ability}{who}: {words}{why} at {call.session.id[:_SHOWN]} {call.seq}"
