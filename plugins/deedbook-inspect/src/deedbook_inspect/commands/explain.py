"""Say what would decide about a call, and where it stands."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from deedbook.cli import completing
from deedbook.cli.common import (
    GlobalOptions,
    args_option,
    json_option,
    parse_arguments,
    principal_option,
    profile_option,
    read_json,
    suggest_json_words,
)
from deedbook.cli.output import DENIED, as_json, data_command, message, say

if TYPE_CHECKING:
    from deedbook.policy.bindings import Bindings
    from deedbook.policy.bound import Caller
    from deedbook.workspace.declarations import Workspace
    from deedbook_audit.recorded import RecordedCall, RecordedSubject
    from deedbook_inspect.rejudging.explanation import Explanation, Notes, Step

SECTION: Final = "Workspace"

UNDETERMINED = 1


@data_command
@click.command("explain")
@click.argument("what", metavar="ABILITY|SESSION|POLICY", shell_complete=completing.abilities)
@click.argument("words", nargs=-1, metavar="[SEQ|SPAN | KEY=VALUE...]")
@args_option
@click.option("--role", metavar="NAME", help="As this role in a run, on behalf of the principal.")
@click.option("--skill", metavar="NAME", help="In a run of this skill.")
@click.option("--subject", metavar="NAME", help="A subject that POLICY judges; the words are its value.")
@click.option("--fact", "facts", multiple=True, metavar="NAME=JSON", help="A fact that gates read; may be repeated.")
@principal_option
@profile_option
@json_option
@click.pass_obj
def command(
    asked: GlobalOptions,
    /,
    what: str,
    words: tuple[str, ...],
    profile: str | None,
    text: str | None,
    subject: str | None,
    facts: tuple[str, ...],
    **who: Any,
) -> int:
    """Explain step by step what decides about a call of ABILITY, and where the rule is.

    With SEQ or SPAN, explain the decision about that call or subject of SESSION, and whether the current charter
    decides alike; `deedbook tree --ids SESSION` lists the seq and the span of every event. With --subject, explain
    what POLICY decides about a subject. Nothing is recorded and nothing is called. The exit status is 0 if the answer
    allows or advises, 3 if not, 1 if it depends on a gate that is not pure.
    """
    from deedbook.kernel import bindings_for_judging
    from deedbook.workspace.workspace import read_workspace

    event = words[0] if len(words) == 1 and "=" not in words[0] else None
    call = _HypotheticalCall(
        args=parse_arguments(text, () if event else words), facts=dict(map(_parse_fact, facts)), **who
    )
    source = read_workspace(asked.workspace, profile)
    with bindings_for_judging(source) as bindings:
        _report_outdated(source, bindings)
        if event is not None:
            return _explain_recorded(asked, source, bindings, what, event)
        if subject is not None:
            return _explain_subject(asked, bindings, (what, subject), call)
        _refuse_session(source, bindings, what)
        caller = _build_caller(bindings, call)
        found = _explain_hypothetical(source, bindings, caller, what, call)
    if asked.json:
        as_json(
            {"schema_version": "v1", **_describe_caller(bindings, caller, what), "recorded": None, **found.as_json()}
        )
    else:
        _print_explanation(found)
        violated = [each for step in found.steps for each in step.more.get("violations", ())]
        for hint in suggest_json_words(words, violated):
            say(hint)
    return _get_status(found)


def _report_outdated(source: "Workspace", bindings: "Bindings") -> None:
    """Print which running processes decide by another charter than the one that is explained."""
    from contextlib import suppress

    from deedbook.format.errors import DeedbookError
    from deedbook.maintenance.processes import describe_outdated, find_outdated

    with suppress(DeedbookError, OSError):
        for each in find_outdated(source.state, bindings.charter):
            message(f"note: {describe_outdated(each, bindings.charter)}. This answer is about the files")


def _refuse_session(source: "Workspace", bindings: "Bindings", what: str) -> None:
    """Raise `click.UsageError` if *what* is no ability but a session, or the beginning of a session's id."""
    from deedbook.cli.ledgers import LAST, session_ids

    names = [LAST, *session_ids(source)]
    if what and what not in bindings.abilities and any(name.startswith(what) for name in names):
        why = f"{what!r} is no ability, but a session; give SEQ: deedbook explain {what} SEQ"
        raise click.UsageError(f"{why} (`deedbook tree --ids {what}` lists seq and span)")


def _explain_subject(
    asked: GlobalOptions, bindings: "Bindings", names: tuple[str, str], call: "_HypotheticalCall"
) -> int:
    """Explain what a policy would decide about a subject; *names* are the policy and the subject."""
    import time

    from deedbook.format.events import timestamp

    from .explain_subject import explain_value

    now = timestamp(time.time())
    when = now, {**_build_facts(now), **call.facts}
    return explain_value(asked, bindings, _build_caller(bindings, call), names, call.args, when)


@attrs.frozen
class _HypotheticalCall:
    """A call to explain: its arguments, its caller, and facts in place of a new session's."""

    args: Any
    role: str | None
    skill: str | None
    facts: Mapping[str, Any]
    principal: str | None


def _explain_hypothetical(
    source: "Workspace", bindings: "Bindings", caller: "Caller", ability: str, call: _HypotheticalCall
) -> "Explanation":
    """Explain a call that was not made."""
    import time

    from deedbook.contract.facts import empty_facts
    from deedbook.format.canonical import admit, decode, without_big_integers
    from deedbook.format.errors import DeedbookError, IntakeError
    from deedbook.format.events import timestamp
    from deedbook.policy.judge import DecisionContext
    from deedbook_audit.rederive import DecisionInput
    from deedbook_inspect.rejudging.explanation import explain

    args, bound = call.args, bindings.abilities.get(ability)
    try:
        raw = admit(without_big_integers(args) if bound and bound.big_integers else args)
        raw = bound.judged_args(raw) if bound else raw
    except IntakeError as problem:
        raise DeedbookError(problem.error) from None
    now = timestamp(time.time())
    facts = {**empty_facts(bindings.reads), **_build_facts(now), **call.facts}
    when = DecisionContext(now, "explained", facts)
    asking = DecisionInput(bindings, caller, ability, decode(raw), raw, when)
    return explain(asking, lambda _gate, _call: None, _build_place_lookup(source), _build_notes(bindings))


def _build_notes(bindings: "Bindings") -> "Notes":
    """Return a function that finds doubtful rules of a policy."""
    from deedbook.charter.policies import lint_policies
    from deedbook.plugins.plugins import discover
    from deedbook.plugins.policy_kinds import installed_kinds

    return lambda policy: lint_policies(bindings.charter.document, installed_kinds(discover()), policy=policy)


def _build_facts(now: str) -> dict[str, Any]:
    """Return the facts of a session that begins *now*."""
    from deedbook.format.folds import MetricsFold

    return {**MetricsFold().start().facts(), "session.started": now, "context.state": None}


def _parse_fact(given: str) -> tuple[str, Any]:
    """Return a fact from ``NAME=JSON``; raises `click.BadParameter`."""
    from deedbook.contract.facts import FACTS
    from deedbook.format.schema import suggest

    name, equals, value = given.partition("=")
    if not equals or name not in FACTS:
        known = ", ".join(sorted(FACTS))
        why = f"{given!r} is no NAME=JSON of a fact{suggest(name, FACTS)}; facts: {known}"
        raise click.BadParameter(why, param_hint="--fact")
    return name, read_json(value, f"--fact {name}")


def _build_caller(bindings: "Bindings", call: _HypotheticalCall) -> "Caller":
    """Return the caller: a person, or in a run a role of its skill."""
    from deedbook.policy.callers import LOCAL, as_role, declared_principal, session_caller, under_flow, with_skill

    who = LOCAL if call.principal is None else declared_principal(bindings.charter.document, call.principal)
    caller = session_caller(who, bindings)
    if call.skill is not None:
        _require_declared("skill", call.skill, bindings.skills)
    if call.role is not None:
        _require_declared("role", call.role, bindings.charter.document["instructions"])
        return as_role(with_skill(caller, call.skill), call.role, bindings)
    return under_flow(with_skill(caller, call.skill), bindings) if call.skill is not None else caller


def _require_declared(what: str, name: str, names: Mapping[str, Any]) -> None:
    from deedbook.format.schema import suggest

    if name not in names:
        declared = ", ".join(sorted(names)) or "none"
        why = f"{what} {name!r} is not declared{suggest(name, names)}; declared: {declared}"
        raise click.BadParameter(why, param_hint=f"--{what}")


def _build_place_lookup(source: "Workspace") -> Callable[[str, str, str], str]:
    def place(section: str, name: str, pointer: str) -> str:
        if section == "skills":
            return _find_line(source, name, pointer.lstrip("/"))
        found = getattr(source, section).get(name)
        return found.place_of(pointer) if found else ""

    return place


def _find_line(source: "Workspace", path: str, key: str) -> str:
    """Return ``file:line`` of a key in a Markdown file's front matter; the file if the key is not found."""
    with suppress(OSError, UnicodeDecodeError):
        lines = (source.root / path).read_text(encoding="utf-8").splitlines()
        return next((f"{path}:{number}" for number, line in enumerate(lines, 1) if line.startswith(f"{key}:")), path)
    return path


def _describe_caller(bindings: "Bindings", caller: "Caller | None", ability: str) -> dict[str, Any]:
    return {
        "ability": ability,
        "principal": caller.principal.id if caller else None,
        "role": caller.role if caller else None,
        "skill": caller.skill if caller else None,
        "charter": bindings.charter.digest,
        "enforcement": bindings.enforcement,
    }


def _get_status(found: "Explanation") -> int:
    return {"allow": 0, "undetermined": UNDETERMINED}.get(found.outcome, DENIED)


# --- recorded calls -------------------------------------------------------------------------------------------------


def _explain_recorded(asked: GlobalOptions, source: "Workspace", bindings: "Bindings", session: str, event: str) -> int:
    from deedbook.format.files import Folder
    from deedbook.policy.judge import DecisionContext
    from deedbook_audit.calls import read_decisions
    from deedbook_audit.commands.ledgers import session_file
    from deedbook_audit.recorded import RecordedSubject
    from deedbook_audit.rederive import DecisionInput, Rejudger, find_recorded_answer
    from deedbook_inspect.rejudging.explanation import explain

    from .explain_subject import explain_recorded

    place = session_file(asked.workspace, session)
    with Folder.at(place.parent) as folder, folder.open(place.name) as file:
        call = _find_decision(read_decisions(file, str(place), folder, bindings.reads), session, event)
        if isinstance(call, RecordedSubject):
            return explain_recorded(asked, bindings, call)
        rejudger = Rejudger(bindings)
        caller, found = rejudger.get_caller(call), None
        if caller is not None:
            when = DecisionContext(call.ts, call.session.id, call.facts)
            asking = DecisionInput(bindings, caller, call.ability, call.args, call.raw, when)
            found = explain(
                asking,
                lambda gate, seen: find_recorded_answer(call, gate, seen),
                _build_place_lookup(source),
                _build_notes(bindings),
            )
        recorded = _describe_recorded(call, rejudger(call).change)
    if asked.json:
        today = found.as_json() if found else _describe_nothing(call)
        as_json(
            {"schema_version": "v1", **_describe_caller(bindings, caller, call.ability), "recorded": recorded, **today}
        )
    else:
        _print_recorded(call, recorded)
        if found:
            _print_explanation(found)
    return _get_status(found) if found else UNDETERMINED


def _find_decision(calls: Any, session: str, event: str) -> "RecordedCall | RecordedSubject":
    from deedbook.format.errors import LedgerError, fault

    known: list[int] = []
    for call in calls:
        if event in (str(call.seq), call.span):
            return call  # type: ignore[no-any-return]
        known.append(call.seq)
    raise LedgerError(fault("EVENT_NOT_FOUND", _describe_no_call(session, event, known)))


def _describe_no_call(session: str, event: str, known: Sequence[int]) -> str:
    """Return the message that an event is no call, with the first events that are."""
    from deedbook.format.terminal import MOST_OF_A_KIND

    why = f"event {event!r} of session {session!r} is no call, no denial and no decision about a subject"
    if not known:
        return f"{why}; the session has none"
    more = ", …" if len(known) > MOST_OF_A_KIND else ""
    seqs = ", ".join(map(str, known[:MOST_OF_A_KIND]))
    return f"{why}; those have the seq {seqs}{more} (`deedbook tree --ids {session}` lists all events)"


def _describe_recorded(call: "RecordedCall", change: str) -> dict[str, Any]:
    """Return the recorded decision about a call: its caller, the outcome, the deciding gate, the charter."""
    asked: list[Any] = []
    with suppress(Exception):  # a sealed value may have been erased
        asked = [dict(line) for record in call.read_gate_records() for line in record.get("asked", ())]
    return {
        "session": call.session.id,
        "seq": call.seq,
        "span": call.span,
        "ts": call.ts,
        "principal": call.principal,
        "charter": call.session.charter,
        "enforcement": call.session.enforcement,
        "outcome": call.outcome,
        "code": call.code,
        "reason": call.reason,
        "by": call.by,
        "asked": asked,
        "today": change,
    }


def _describe_nothing(call: "RecordedCall") -> dict[str, Any]:
    why = call.why or "who asked cannot be told"
    return {"steps": [], "outcome": "undetermined", "code": "", "reason": why, "by": None, "remedy": ""}


def _print_recorded(call: "RecordedCall", recorded: Mapping[str, Any]) -> None:
    from deedbook.format.terminal import plain
    from deedbook_inspect.rejudging.whatif import TOTALS

    say(plain(f"recorded   {call.ts} {call.ability} for {call.principal}: {call.outcome} {call.code}".rstrip()))
    if call.reason:
        say(plain(f"because    {call.reason}"))
    deciding = {name for name in ("hook", "policy") for by in (call.by or {},) if name in by}
    for line in recorded["asked"]:
        kind = "policy" if "policy" in line else "hook"
        mark = " (decided)" if kind in deciding and (call.by or {}).get(kind) == line[kind] else ""
        where = f", {line['rule']}" if "rule" in line else ""
        say(plain(f"asked      {kind} {line[kind]}: {line['decision']}{where}, digest {line['digest'][:12]}{mark}"))
    say(f"charter    {call.session.charter}")
    say(f"today      {TOTALS[recorded['today']]}{f' ({call.why})' if call.why else ''}")


# --- text output ----------------------------------------------------------------------------------------------------


def _print_explanation(found: "Explanation") -> None:
    from deedbook.format.terminal import plain
    from deedbook_inspect.rejudging.explanation import DID_YOU_MEAN

    outcome = f"outcome    {found.outcome}{f' {found.code}' if found.code else ''}{_format_reason(found.reason)}"
    lines = [*(line for step in found.steps for line in _format_step(step)), outcome]
    if found.remedy:
        lines.insert(0 if found.remedy.startswith(DID_YOU_MEAN) else len(lines), found.remedy)
    for line in lines:
        say(plain(line))


def _format_step(step: "Step") -> list[str]:
    import json

    where = f" at {step.place}" if step.place else ""
    observed = " (observed: it does not bind)" if step.more.get("observed") else ""
    lines = [f"{step.what:10} {step.name}: {step.result}{observed}{where}{_format_reason(step.reason)}"]
    passed, violated = step.more.get("passed_over", ()), step.more.get("violations", ())
    lines += [f"           not {each['rule']} ({each['then']}): {each['why']}" for each in passed]
    lines += [f"           {each['path']}: {each['message']} ({each['schema']})" for each in violated]
    if "after" in step.more:
        before, after = (json.dumps(step.more[name], ensure_ascii=False) for name in ("before", "after"))
        lines += [f"           before {before}", f"           after  {after}"]
    return lines


def _format_reason(reason: str) -> str:
    return f" ({reason})" if reason else ""
