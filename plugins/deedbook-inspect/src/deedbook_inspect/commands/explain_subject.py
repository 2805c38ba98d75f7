"""The part of `deedbook explain` about subjects: what a policy would decide, or decided, about one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from deedbook.cli.common import GlobalOptions
from deedbook.cli.output import DENIED, as_json, say

if TYPE_CHECKING:
    from deedbook.policy.bindings import Bindings
    from deedbook.policy.bound import Caller
    from deedbook_audit.recorded import RecordedSubject
    from deedbook_audit.subjects import RejudgedSubject

UNDETERMINED = 1


def explain_value(
    asked: GlobalOptions, bindings: "Bindings", caller: "Caller", names: tuple[str, str], value: Any, when: Any
) -> int:
    """Explain what a policy would decide about a value; *names* are policy and subject, *when* time and facts."""
    from deedbook.contract import Failed
    from deedbook.policy.subjects import answer_subject, encode_subject, find_subject, gate_record, subject_case

    try:
        bound = find_subject(bindings.subjects, *names)
        raw = encode_subject(bound, value)
    except Failed as problem:
        raise click.UsageError(str(problem)) from None
    line: Mapping[str, Any] = {}
    if bound.gate.pure:
        now, facts = when
        case = subject_case(bound, raw, caller, bindings.enforcement, "explained", now, facts)
        line = gate_record(bound.gate, answer_subject(bound, lambda: 0.0, case))
    why = "" if line else f"policy {names[0]} is not pure, so its answer is not known before it is asked"
    if asked.json:
        as_json(_document(bindings, caller, names, value, None, _answer(line, why)))
    else:
        _print_answer(f"{names[1]} by {names[0]}", line, why, bindings.enforcement)
    return UNDETERMINED if why else DENIED if line["decision"] in ("deny", "ask") else 0


def explain_recorded(asked: GlobalOptions, bindings: "Bindings", recorded: "RecordedSubject") -> int:
    """Explain a recorded decision about a subject, and whether the current charter decides alike."""
    from deedbook_audit.rederive import Rejudger
    from deedbook_audit.subjects import judge_subject_again

    rejudger = Rejudger(bindings)
    caller = rejudger.get_caller(recorded)
    found = judge_subject_again(rejudger, recorded)
    names = recorded.policy, recorded.name
    if asked.json:
        as_json(_document(bindings, caller, names, recorded.value, _describe(recorded, found), _today(found)))
    else:
        _print_recorded(recorded, found)
    if found.change in ("undetermined", "missing"):
        return UNDETERMINED
    return DENIED if found.record["decision"] in ("deny", "ask") else 0


def _document(
    bindings: "Bindings",
    caller: "Caller | None",
    names: tuple[str, str],
    value: Any,
    recorded: Mapping[str, Any] | None,
    today: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "policy": names[0],
        "subject": {"name": names[1], "value": value},
        "principal": caller.principal.id if caller else None,
        "role": caller.role if caller else None,
        "skill": caller.skill if caller else None,
        "charter": bindings.charter.digest,
        "enforcement": bindings.enforcement,
        "recorded": recorded,
        **today,
    }


def _today(found: "RejudgedSubject") -> dict[str, Any]:
    return _answer(found.record, "" if found.record else found.why)


def _answer(line: Mapping[str, Any], why: str) -> dict[str, Any]:
    from deedbook_inspect.rejudging.subject_changes import answer_json

    return {"answer": answer_json(line) if line else None, "why": why}


def _describe(recorded: "RecordedSubject", found: "RejudgedSubject") -> dict[str, Any]:
    from deedbook_inspect.rejudging.subject_changes import answer_json

    return {
        "session": recorded.session.id,
        "seq": recorded.seq,
        "span": recorded.span,
        "ts": recorded.ts,
        "principal": recorded.principal,
        "charter": recorded.session.charter,
        "enforcement": recorded.session.enforcement,
        "facts": dict(recorded.facts),
        "answer": answer_json(recorded.line),
        "today": found.change,
    }


def _print_recorded(recorded: "RecordedSubject", found: "RejudgedSubject") -> None:
    from deedbook.format.event_text import show
    from deedbook.format.terminal import plain
    from deedbook_inspect.rejudging.subject_changes import SUBJECT_TOTALS

    about = f"{recorded.name} by {recorded.policy}"
    say(plain(f"recorded   {recorded.ts} {about} for {recorded.principal}: {recorded.line.get('decision')}"))
    say(plain(f"value      {show(recorded.value)}"))
    for name, words in (("reason", "because"), ("rule", "rule"), ("signals", "signals")):
        if name in recorded.line:
            say(plain(f"{words:10} {show(recorded.line[name])}"))
    say(f"charter    {recorded.session.charter}")
    say(plain(f"today      {SUBJECT_TOTALS[found.change]}{f' ({found.why})' if not found.record else ''}"))
    if found.record and found.change != "same":
        _print_answer(about, found.record, "", recorded.session.enforcement)


def _print_answer(about: str, line: Mapping[str, Any], why: str, enforcement: str) -> None:
    from deedbook.format.event_text import show
    from deedbook.format.terminal import plain

    for name in ("rule", "signals"):
        if name in line:
            say(plain(f"{name:10} {show(line[name])}"))
    outcome = line.get("decision", "undetermined")
    reason = f" ({line.get('reason') or why})" if line.get("reason") or why else ""
    seen = "; the flow gets advisory" if enforcement == "observe" and outcome not in ("allow", "undetermined") else ""
    say(plain(f"outcome    {about}: {outcome}{reason}{seen}"))
