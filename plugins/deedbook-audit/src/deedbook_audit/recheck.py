"""The third part of verification: derives the facts, rules and decisions of a session again from its record.

Every call is judged under the charter that the session names, or that its last ``session.resumed`` names. The answer of
a gate that cannot be asked again is taken from the record and counted, with the distribution that would be needed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import attrs

from deedbook.contract import Call, Decision
from deedbook.format.canonical import decode, encode
from deedbook.format.errors import DeedbookError, LedgerError
from deedbook.format.events import split_line
from deedbook.format.files import Folder
from deedbook.format.sealed import open_values
from deedbook.format.terminal import excerpt
from deedbook.policy.bindings import Bindings
from deedbook.policy.gates import BoundGate, rule_of
from deedbook.policy.requests import call_digest
from deedbook_audit.verification.headers import MAX_LINE

from .calls import read_calls, read_decisions
from .charters import InvalidCharter, describe_unusable
from .facts import FoldedFacts
from .recorded import UNKNOWN_CALLER, RecordedCall, RecordedSubject
from .rederive import LATE_PREFIX, RederivedDecision, Rejudger, find_recorded_answer, read_answers
from .report import Decisions, Failure, Findings
from .subjects import judge_subject_again

CharterSource: TypeAlias = Callable[[str], Bindings | InvalidCharter | str]
"""Returns a charter by its digest, bound to judge; a text says why it is not available here."""

_CALLS: Final = "session.calls"
_RESUMED: Final = b'"event_type":"session.resumed"'
_HEADER: Final = 512
_NAMELESS: Final = "the session names no charter"
_COMPILED: Final = "a charter that Deedbook compiled, whose bytes match its digest"


def recheck(ledger: Path, charters: CharterSource) -> Decisions:
    """Judge every call of a session's file *ledger* again; memory does not grow with it.

    A faulty charter is a result, not an error. Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that is not of
    format 1.1, `FileNotFoundError`.
    """
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        bindings = _find_charter(file, str(ledger), folder, charters)
        file.seek(0)
        if not isinstance(bindings, Bindings):
            return _report_unchecked(bindings, sum(1 for _ in read_calls(file, str(ledger), folder)))
        check = _SessionCheck(charters)
        for decision in read_decisions(file, str(ledger), folder, bindings.reads or _later_facts(file)):
            check.check(decision)
        return check.build_report()


def _later_facts(file: BinaryIO) -> frozenset[str]:
    """Return the facts to fold for a session that was resumed: a later charter may have gates that read any of them."""
    resumed = any(_RESUMED in line[:_HEADER] for line in file)
    file.seek(0)
    return frozenset(FoldedFacts().now()) if resumed else frozenset()


def _find_charter(
    file: BinaryIO, place: str, folder: Folder, charters: CharterSource
) -> Bindings | InvalidCharter | str:
    """Return the charter that the first line of a session names."""
    try:
        digest = open_values(folder, decode(split_line(file.readline(MAX_LINE), place=place).payload)).get("charter")
    except LedgerError:
        raise
    except (DeedbookError, OSError, ValueError) as problem:
        return f"what the session says of its charter cannot be read: {problem}"
    return charters(digest) if isinstance(digest, str) else _NAMELESS


def _report_unchecked(why: InvalidCharter | str, calls: int) -> Decisions:
    if isinstance(why, str):
        return Decisions(calls=calls, unknown={why: calls}, unchecked=why)
    return Decisions(calls=calls, failures=(Failure(1, "charter", _COMPILED, excerpt(why.why)),))


class _SessionCheck:
    """The decisions of one session, each checked under the charter that was in force at its time."""

    def __init__(self, charters: CharterSource) -> None:
        self._charters = charters
        self._judges: dict[tuple[str, str], Rejudger | InvalidCharter | str] = {}
        self._findings = Findings()
        self._same = self._subjects = self._same_subjects = 0
        self._from_record: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()

    def build_report(self) -> Decisions:
        """Return the result."""
        part = self._findings.part()
        return Decisions(
            part.checked,
            self._same,
            part.failures,
            part.more,
            self._from_record,
            self._unknown,
            subjects=self._subjects,
            same_subjects=self._same_subjects,
        )

    def check(self, call: RecordedCall | RecordedSubject) -> None:
        """Judge a call or a subject again; a faulty charter is a result, not an error."""
        if isinstance(call, RecordedCall):
            self._findings.checked += 1
        else:
            self._subjects += 1
        judge = self._find_judge(call)
        if not isinstance(judge, Rejudger):
            self._add_unusable(call, judge)
            return
        try:
            if isinstance(call, RecordedCall):
                self._check_call(call, judge)
            else:
                self._check_subject(call, judge)
        except Exception as problem:  # noqa: BLE001 - an ability is bound on first use, and its entry may hold anything
            self._add_unusable(call, describe_unusable(problem))

    def _find_judge(self, call: RecordedCall | RecordedSubject) -> Rejudger | InvalidCharter | str:
        """Return the judge under the charter of *call*, or why there is none."""
        key = call.session.charter, call.session.enforcement
        if key not in self._judges:
            found = self._charters(key[0]) if key[0] else _NAMELESS
            if isinstance(found, Bindings):
                self._judges[key] = Rejudger(attrs.evolve(found, enforcement=key[1]))
            else:
                self._judges[key] = found
        return self._judges[key]

    def _add_unusable(self, call: RecordedCall | RecordedSubject, why: InvalidCharter | str) -> None:
        if isinstance(why, str):
            self._unknown[why] += 1
        else:
            self._findings.add(call.seq + 1, "charter", _COMPILED, why.why)

    def _check_call(self, call: RecordedCall, judge: Rejudger) -> None:
        if call.signed and call.why in ("", UNKNOWN_CALLER):
            found = call_digest(call.ability, call.final, call.principal)
            if found != call.signed:
                self._findings.add(call.seq + 1, "approval", f"the call {call.signed}, which was signed for", found)
        if call.why:
            self._unknown[call.why] += 1
            return
        asked_gates: list[BoundGate] = []

        def answer(gate: BoundGate, seen: Call) -> Decision | None:
            asked_gates.append(gate)
            return find_recorded_answer(call, gate, seen)

        rederived = judge.rederive(call, answer)
        if rederived is None:
            self._unknown[UNKNOWN_CALLER] += 1
            return
        self._from_record.update({_describe_gate(judge.bindings, gate) for gate in asked_gates})
        self._compare(judge, call, rederived)

    def _check_subject(self, subject: RecordedSubject, judge: Rejudger) -> None:
        found = judge_subject_again(judge, subject)
        bound = judge.bindings.subjects.get(subject.policy, {}).get(subject.name)
        if bound is not None and not bound.gate.pure:
            self._from_record[_describe_gate(judge.bindings, bound.gate)] += 1
        if found.change == "undetermined":
            self._unknown[found.why] += 1
            return
        wrong = [*_older_facts(subject, subject.facts, "")]
        if found.change != "same":
            answers = (_describe_answer(found.record) if found.record else found.why, _describe_answer(subject.line))
            wrong.append(("answer", f"policy {subject.policy}: {answers[0]}", answers[1]))
        for check, expected, recorded in wrong:
            self._findings.add(subject.seq + 1, check, expected, recorded)
        self._same_subjects += not wrong

    def _compare(self, judge: Rejudger, call: RecordedCall, rederived: RederivedDecision) -> None:
        found = judge.compare(call, rederived)
        if found.change == "undetermined":
            self._unknown[found.why] += 1
            return
        wrong = [*self._compare_facts(call), *self._compare_answers(call, rederived)] if found.change == "same" else []
        if found.change != "same":
            verdict = rederived.verdict
            recorded = f"{call.outcome} {call.code}".strip()
            wrong = [("decision", f"{verdict.outcome} {verdict.code} {verdict.reason}".strip(), recorded)]
        for check, expected, recorded in wrong:
            self._findings.add(call.seq + 1, check, expected, recorded)
        self._same += not wrong

    def _compare_facts(self, call: RecordedCall) -> Iterator[tuple[str, str, str]]:
        """Yield each recorded fact that differs from the facts before the call."""
        if not call.was_pending:
            facts = {name: value for record in call.read_gate_records() for name, value in _get_facts(record)}
            yield from _older_facts(call, facts, call.ability)

    def _compare_answers(self, call: RecordedCall, rederived: RederivedDecision) -> Iterator[tuple[str, str, str]]:
        """Yield each answer of a repeated gate that differs from the record."""
        if call.was_pending:
            return
        verdict, lines = rederived.verdict, read_answers(call)
        for gate, decision in (*verdict.rewrites, *verdict.hooks, *verdict.policies):
            if not gate.pure or call.find_excised()[gate.kind == "policy"]:
                continue
            line = next(
                (each for each in lines if each["digest"] == gate.digest and each.get(gate.kind) == gate.id), {}
            )
            rule = rule_of(gate, decision)
            recorded = line.get("decision"), line.get("rule")
            if recorded != (decision.outcome, rule) and not str(line.get("reason", "")).startswith(LATE_PREFIX):
                yield (
                    "answer",
                    f"{gate.kind} {gate.id}: {decision.outcome}{_by(rule)}",
                    f"{recorded[0]}{_by(recorded[1])}",
                )


def _describe_gate(bindings: Bindings, gate: BoundGate) -> str:
    """Return the name of what is needed to ask a gate again."""
    document = bindings.charter.document
    entry = document["hooks" if gate.kind == "hook" else "policies"][gate.id]
    plugin = document["plugins"]["/".join(entry["plugin"])] if "plugin" in entry else None
    if plugin is None:
        return f"{gate.kind} {gate.id}, a script"
    if not entry["pure"] or gate.waits:
        return f"{gate.kind} {gate.id}, which is not pure ({_describe_plugin(plugin)})"
    return f"{gate.kind} {gate.id} of {_describe_plugin(plugin)}"


def _describe_plugin(plugin: Mapping[str, Any]) -> str:
    digest = plugin["digest"]
    return f"{plugin['distribution']} {plugin['version']}, {f'sha256 {digest}' if digest else 'editable'}"


def _get_facts(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    facts = record.get("facts")
    yield from facts.items() if isinstance(facts, dict) else ()


def _older_facts(
    event: RecordedCall | RecordedSubject, facts: Mapping[str, Any], ability: str
) -> Iterator[tuple[str, str, str]]:
    """Yield each of the recorded *facts* that differs from those before the event, and was not true shortly before."""
    now, had_recently = event.folded, event.had_recently
    if had_recently is None:
        return
    for name, value in facts.items():
        is_older = _may_be_older(now, name, value, ability) if name in now else True
        if name in now and now[name] != value and not (is_older and had_recently(name, value)):
            yield "facts", f"{name} {now[name]}", str(value)


def _may_be_older(now: Mapping[str, Any], name: str, value: Any, ability: str) -> bool:
    """Return whether a fact may be older than the event; readers of facts take turns, so its own count may not."""
    if name != _CALLS or not ability:
        return True
    return isinstance(value, dict) and value.get(ability) == now[name].get(ability)


def _describe_answer(line: Mapping[str, Any]) -> str:
    signals = f" {encode(line['signals']).decode()}" if "signals" in line else ""
    return f"{line.get('decision')}{_by(line.get('rule'))}{signals}"


def _by(rule: Any) -> str:
    return "" if rule is None else f" by {rule}"
