"""Policy tests: calls and subjects in YAML, decided by the real judge without I/O, and the rules that they cover.

A file ends in ``.test.yaml`` and stands beside the policies (``schemas/policy_test_v1.json``, ``policy_test_v2.json``).
Policies are enforced here even where the workspace only observes. Hooks run only on request, and only pure ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Decision, Failed, Object, Principal
from deedbook.contract.facts import empty_facts
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import DomainError, IntakeError, SourceError, fault, raise_all
from deedbook.format.schema import Schemas, suggest
from deedbook.plugins.policy_kinds import Kinds
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import EVERYTHING, BoundAbility, Caller
from deedbook.policy.gates import BoundGate, decision_source, merge
from deedbook.policy.judge import DecisionContext, Verdict, judge
from deedbook.policy.subjects import answer_subject, encode_subject, find_subject, subject_case
from deedbook.workspace.declarations import PolicySource
from deedbook.workspace.documents import Document
from deedbook.workspace.trees import SourceTree
from deedbook_author.policy_coverage import reachable_rules

FOLDER: Final = "policies"
"""The folder of test files, in ``.system`` and in a pack."""
NOW: Final = "2026-01-01T00:00:00.000Z"
"""The time of a call whose case gives none."""
SESSION: Final = "policy-test"
_NO_SOURCES: Final[Mapping[str, PolicySource]] = MappingProxyType({})

_REFUSED_BEFORE_POLICIES: Final = frozenset({"TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED", "SCHEMA_VIOLATION"})


@attrs.frozen(kw_only=True)
class Case:
    """One case: a call, its caller and facts, and the expected outcome; *place* is ``file:line``.

    With *subject* it is about that subject with the *value*, which *policy* judges, and the expected *signals* must be
    among those of the decision.
    """

    name: str
    place: str
    expect: str
    ability: str = ""
    subject: str = ""
    policy: str = ""
    value: Object = attrs.field(factory=dict)
    signals: Object = attrs.field(factory=dict)
    args: Object = attrs.field(factory=dict)
    principal: str = "local"
    roles: tuple[str, ...] | None = None
    role: str | None = None
    skill: str | None = None
    facts: Object = attrs.field(factory=dict)
    now: str = NOW
    policies: tuple[str, ...] | None = None
    rule: int | str | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class CaseResult:
    """The result of a case: the outcome (*got*), its *reason* and who *decided_by*; *problem* is empty if it passed."""

    case: Case
    got: str
    reason: str
    decided_by: Object
    problem: str
    decided: tuple[tuple[str, int | None], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        case = self.case
        subject = {"policy": case.policy, "subject": case.subject} if case.subject else {}
        return {
            "name": case.name, "place": case.place, "ability": case.ability, **subject, "expect": case.expect,
            "got": self.got, "ok": not self.problem, "problem": self.problem, "reason": self.reason,
            "by": dict(self.decided_by),
        }  # fmt: skip


@attrs.frozen
class RuleCoverage:
    """A rule of a policy, or its default (*rule* is ``None``): its place, and whether a case reaches it."""

    policy: str
    rule: int | None
    place: str
    covered: bool

    @property
    def label(self) -> str:
        """The rule for people, counted from 1."""
        return "the default" if self.rule is None else f"rule {self.rule + 1}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; rules count from 1."""
        number = None if self.rule is None else self.rule + 1
        return {"policy": self.policy, "rule": number, "place": self.place, "covered": self.covered}


def covered_percent(rules: Sequence[RuleCoverage]) -> float:
    """Return the share of *rules* that a case reaches; 100 if there are none."""
    return 100 * sum(each.covered for each in rules) / len(rules) if rules else 100.0


def read_cases(tree: SourceTree, path: str, schemas: Schemas) -> list[Case]:
    """Return the cases of one file. Raises `SourceError` with every fault of the file."""
    document = tree.yaml(path)
    said: Any = document.value
    is_second = isinstance(said, Mapping) and said.get("schema_version") == "v2"
    found = schemas.interpreted("policy_test_v2" if is_second else "policy_test_v1").violations(said)
    raise_all(SourceError, (_fault(document, each.path, each.message, each.pointer) for each in found))
    cases = [_case(body, document.line(join_pointer("cases", index))) for index, body in enumerate(said["cases"])]
    raise_all(SourceError, _duplicate_names(cases))
    return cases


def _case(body: Mapping[str, Any], place: str) -> Case:
    lists = {key: tuple(body[key]) for key in ("roles", "policies") if key in body}
    return Case(**{**body, **lists, "place": place})


def _fault(document: Document, path: str, message: str, at: str) -> DomainError:
    unknown = message.startswith("unknown key")
    return fault("SOURCE_INVALID", f"{path.removeprefix('$.')}: {message}", place=document.place(at, key=unknown))


def _duplicate_names(cases: Iterable[Case]) -> Iterator[DomainError]:
    first: dict[str, str] = {}
    for case in cases:
        if first.setdefault(case.name, case.place) != case.place:
            yield fault(
                "SOURCE_INVALID",
                f'"{case.name}" is also in {first[case.name]}; rename it',
                place=case.place,
            )


# --- judging ----------------------------------------------------------------------------------------------------------


def run_case(bindings: Bindings, case: Case, *, hooks: bool = False) -> CaseResult:
    """Judge a case. With *hooks*, pure hooks also run."""
    unread = _find_unread_fact(bindings, case)
    if unread:
        return CaseResult(case=case, got="", reason="", decided_by={}, problem=unread)
    if case.subject:
        return _run_subject(bindings, case)
    unknown = _unknown(bindings, case)
    bound = bindings.abilities.get(case.ability)
    if unknown or bound is None:
        why = unknown or f"no ability {case.ability!r} is declared{suggest(case.ability, bindings.abilities)}"
        return CaseResult(case=case, got="", reason="", decided_by={}, problem=why)
    asked = _select_gates(bound, case, hooks=hooks)
    impure = [gate.id for gate in asked.policies if not gate.pure]
    if impure:
        why = f"policy {impure[0]!r} is not pure, so that it cannot be tested; name the others with policies: […]"
        return CaseResult(case=case, got="", reason="", decided_by={}, problem=why)
    try:
        verdict = _judge_case(attrs.evolve(bindings, abilities={bound.id: asked}, enforcement="enforce"), case)
    except IntakeError as problem:
        return CaseResult(case=case, got="", reason="", decided_by={}, problem=f"no such call can be made: {problem}")
    return _result(case, verdict)


def _run_subject(bindings: Bindings, case: Case) -> CaseResult:
    """Judge a case about a subject."""

    def fail(why: str) -> CaseResult:
        return CaseResult(case=case, got="", reason="", decided_by={}, problem=why)

    try:
        bound = find_subject(bindings.subjects, case.policy, case.subject)
        if not bound.gate.pure:
            return fail(f"policy {case.policy!r} is not pure, so that it cannot be tested")
        raw = encode_subject(bound, case.value)
    except Failed as problem:
        return fail(f"no policy was asked: {problem} [{problem.code}]")
    caller, facts = _caller(bindings, case), _facts(case)
    asked = subject_case(bound, raw, caller, "enforce", SESSION, case.now, facts)
    decision = answer_subject(bound, lambda: 0.0, asked)
    return CaseResult(
        case=case,
        got=decision.outcome,
        reason=decision.reason,
        decided_by=decision_source(bound.gate, decision),
        problem=_subject_problem(case, bound.gate, decision),
        decided=((case.policy, _rule(decision)),) if "unclear" not in decision.signals else (),
    )


def _subject_problem(case: Case, gate: BoundGate, decision: Decision) -> str:
    if decision.outcome != case.expect:
        return f"expected {case.expect}, got {decision.outcome}"
    if case.rule is not None and not _is_rule(case.rule, gate, decision):
        return f"expected rule {case.rule} to decide, got {_rule_label(gate, decision)}"
    for name, value in case.signals.items():
        if name not in decision.signals or decision.signals[name] != value:
            told = canonical.encode(dict(decision.signals)).decode()
            return f"expected the signal {name} = {canonical.encode(value).decode()}, got {told}"
    return _reason_problem(case, decision.reason)


def _reason_problem(case: Case, reason: str) -> str:
    if case.reason is not None and case.reason not in reason:
        return f"expected a reason with {case.reason!r}, got {reason!r}"
    return ""


def _facts(case: Case) -> dict[str, Any]:
    """Return the facts of a case; those that it leaves out are as at the beginning of a session."""
    start: dict[str, Any] = {
        "session.calls": {},
        "session.usage": {},
        "session.started": case.now,
        "context.state": None,
    }
    return {**start, **case.facts}


def _find_unread_fact(bindings: Bindings, case: Case) -> str:
    """Return why a fact of a feature in a case is wrong: nothing reads it; empty if all are read."""
    given = empty_facts(case.facts)
    name = next((name for name in given if name not in bindings.reads), None)
    return "" if name is None else f"no policy and no hook reads the fact {name!r}{suggest(name, bindings.reads)}"


def _unknown(bindings: Bindings, case: Case) -> str:
    policies = bindings.charter.document["policies"]
    for name in case.policies or ():
        if name not in policies:
            return f"no policy {name!r} is declared{suggest(name, policies)}"
    return ""


def _select_gates(bound: BoundAbility, case: Case, *, hooks: bool) -> BoundAbility:
    pure = (lambda gate: gate.pure) if hooks else (lambda _gate: False)
    return attrs.evolve(
        bound,
        rewriters=tuple(filter(pure, bound.rewriters)),
        guards=tuple(filter(pure, bound.guards)),
        policies=tuple(gate for gate in bound.policies if case.policies is None or gate.id in case.policies),
        default=bound.default if case.policies is None else None,  # these policies alone are tested
    )


def _judge_case(bindings: Bindings, case: Case) -> Verdict:
    caller = _caller(bindings, case)
    raw = bindings.abilities[case.ability].judged_args(canonical.admit(dict(case.args)))
    when = DecisionContext(case.now, SESSION, {**empty_facts(bindings.reads), **_facts(case)})
    judging = judge(bindings, caller, case.ability, canonical.decode(raw), raw, when, lambda: 0.0)
    try:
        next(judging)
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict
    raise AssertionError("only pure gates are asked here")


def _caller(bindings: Bindings, case: Case) -> Caller:
    entry = bindings.charter.document["principals"].get(case.principal, {})
    roles = case.roles if case.roles is not None else entry.get("roles", ())
    who = Principal(case.principal, entry.get("via") or "cli", frozenset(roles), entry.get("on_behalf_of"))
    return Caller(principal=who, actor="user", scope=EVERYTHING, role=case.role, skill=case.skill)


def _result(case: Case, verdict: Verdict) -> CaseResult:
    asked = [*verdict.rewrites, *verdict.hooks, *verdict.policies]
    worst = merge(asked) or next(((gate, said) for gate, said in verdict.policies if said.outcome == "allow"), None)
    who = verdict.by or (decision_source(*worst) if worst else {})
    reason = verdict.reason or (worst[1].reason if worst else "")
    decided = tuple((gate.id, _rule(said)) for gate, said in verdict.policies if "unclear" not in said.signals)
    return CaseResult(
        case=case,
        got=verdict.outcome,
        reason=reason,
        decided_by=who,
        problem=_problem(case, verdict, reason),
        decided=decided,
    )


def _rule(decision: Decision) -> int | None:
    rule = decision.signals.get("rule")
    return rule if type(rule) is int else None


def _problem(case: Case, verdict: Verdict, reason: str) -> str:
    if verdict.code in _REFUSED_BEFORE_POLICIES:  # otherwise a wrong test would pass as a denial
        return f"no policy was asked: {verdict.reason} [{verdict.code}]"
    if verdict.outcome != case.expect:
        return f"expected {case.expect}, got {verdict.outcome}"
    if case.rule is not None and not any(_is_rule(case.rule, *pair) for pair in _matching_decisions(verdict)):
        told = ", ".join(_rule_label(*pair) for pair in _matching_decisions(verdict)) or "no rule"
        return f"expected rule {case.rule} to decide, got {told}"
    return _reason_problem(case, reason)


def _matching_decisions(verdict: Verdict) -> list[tuple[BoundGate, Decision]]:
    return [(gate, said) for gate, said in verdict.policies if said.outcome == verdict.outcome]


def _is_rule(expected: int | str, gate: BoundGate, decision: Decision) -> bool:
    rule = _rule(decision)
    if rule is None or expected == "default":
        return rule is None and expected == "default"
    return expected == rule + 1 or (isinstance(expected, str) and _ends(gate.rules[rule], expected))


def _ends(place: str, expected: str) -> bool:
    return place == expected or place.endswith(f"/{expected}")


def _rule_label(gate: BoundGate, decision: Decision) -> str:
    rule = _rule(decision)
    return f"the default of {gate.id}" if rule is None else f"rule {rule + 1} of {gate.id} ({gate.rules[rule]})"


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverage(
    bindings: Bindings, findings: Iterable[CaseResult], kinds: Kinds, sources: Mapping[str, PolicySource] = _NO_SOURCES
) -> list[RuleCoverage]:
    """Return every rule, and every default that can decide, with whether a case reaches it.

    Policies whose kind cannot list its reachable rules are left out. So are rules of packs that can decide about no
    ability here, if *sources* tell which policies are those of packs.
    """
    document = bindings.charter.document
    seen = {pair for finding in findings for pair in finding.decided}
    parts = []
    for name, entry in sorted(document["policies"].items()):
        found = reachable_rules(document, kinds, name)
        if found is not None:
            packed = name in sources and sources[name].origin.packed
            parts += [
                RuleCoverage(name, index, place, (name, index) in seen)
                for index, place in enumerate(entry["rules"])
                if index in found or not packed
            ]
            parts += [RuleCoverage(name, None, entry["place"], (name, None) in seen)] if None in found else []
    return parts
