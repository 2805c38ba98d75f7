"""Derives recorded decisions about subjects again, under any charter; pure: only pure gates are asked."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from deedbook.contract import Decision, Failed
from deedbook.format.canonical import decode, encode
from deedbook.format.files import Folder
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.gates import RANK
from deedbook.policy.subjects import BoundSubject, answer_subject, encode_subject, gate_record, subject_case

from .calls import read_decisions
from .recorded import UNKNOWN_CALLER, RecordedCall, RecordedSubject
from .rederive import LATE, LATE_PREFIX, RejudgedCall, Rejudger, describe_unknown

SubjectChange: TypeAlias = Literal["same", "looser", "tighter", "changed", "missing", "undetermined"]


@attrs.frozen(eq=False)
class RejudgedSubject:
    """A recorded decision about a subject, and the answer now: *change* compares the two.

    ``looser`` and ``tighter``: the answer is less or more strict; ``changed``: the rule or the signals differ;
    ``missing``: the policy, its subject, or a value of this form no longer exists; ``undetermined``: *why* says what is
    unknown. *record* is the answer now as ``policy.check`` would record it.
    """

    subject: RecordedSubject
    change: SubjectChange
    why: str = ""
    record: dict[str, Any] = attrs.field(factory=dict)


def rejudge_subject(recorded: RecordedSubject, bindings: Bindings, caller: Caller) -> RejudgedSubject:
    """Ask the policy of *bindings* again about a recorded subject of *caller*, with the recorded facts."""
    bound = bindings.subjects.get(recorded.policy, {}).get(recorded.name)
    if bound is None:
        return RejudgedSubject(recorded, "missing", f"no policy {recorded.policy} judges {recorded.name}")
    try:
        raw = encode_subject(bound, recorded.value)
    except Failed as problem:
        return RejudgedSubject(recorded, "missing", str(problem))
    answer = _answer(recorded, bound, raw, caller, bindings.enforcement)
    if answer is None:
        return RejudgedSubject(recorded, "undetermined", describe_unknown(bound.gate))
    if isinstance(answer, str):
        return RejudgedSubject(recorded, "undetermined", answer)
    record: dict[str, Any] = decode(encode(gate_record(bound.gate, answer)))
    change = compare_answers(recorded.line, record)
    if change != "same" and str(recorded.line.get("reason", "")).startswith(LATE_PREFIX):
        return RejudgedSubject(recorded, "undetermined", LATE)
    return RejudgedSubject(recorded, change, str(record.get("reason", "")), record)


def judge_subject_again(judging: Rejudger, recorded: RecordedSubject) -> RejudgedSubject:
    """Judge a recorded subject again under the charter of *judging*."""
    caller = judging.get_caller(recorded)
    if caller is None:
        return RejudgedSubject(recorded, "undetermined", recorded.why or UNKNOWN_CALLER)
    return rejudge_subject(recorded, judging.bindings, caller)


def rejudge_decisions(ledger: Path, bindings: Bindings) -> Iterator[RejudgedCall | RejudgedSubject]:
    """Judge every call and every subject of a session's file *ledger* again, as `rederive.rejudge` does."""
    judging = Rejudger(bindings)
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        for each in read_decisions(file, str(ledger), folder, bindings.reads):
            yield judging(each) if isinstance(each, RecordedCall) else judge_subject_again(judging, each)


def _answer(
    recorded: RecordedSubject, bound: BoundSubject, raw: bytes, caller: Caller, enforcement: str
) -> Decision | str | None:
    """Return the answer of a pure gate, or that of the record; a text says why a pure gate cannot be asked."""
    gate, line = bound.gate, recorded.line
    if not gate.pure:
        if line.get("digest") != gate.digest:
            return None
        rule = {"rule": line["rule"]} if "rule" in line else {}
        return Decision(line["decision"], line.get("reason", ""), None, {**line.get("signals", {}), **rule})
    facts = {**recorded.folded, **recorded.facts}
    missing = sorted(gate.reads - facts.keys())
    if missing:
        return f"policy {gate.id} reads {missing[0]}, which is not recorded"
    case = subject_case(bound, raw, caller, enforcement, recorded.session.id, recorded.ts, facts)
    return answer_subject(bound, _frozen_clock, case)


def compare_answers(was: Mapping[str, Any], now: Mapping[str, Any]) -> SubjectChange:
    """Return how the answer *now* differs from another one; both are lines of ``policy.check``."""
    ranks = RANK.get(str(was.get("decision")), len(RANK)), RANK[now["decision"]]
    if ranks[0] != ranks[1]:
        return "looser" if ranks[1] < ranks[0] else "tighter"
    return "same" if all(was.get(part) == now.get(part) for part in ("rule", "signals")) else "changed"


def _frozen_clock() -> float:
    """Return 0: a repeated judgement is never late."""
    return 0.0
