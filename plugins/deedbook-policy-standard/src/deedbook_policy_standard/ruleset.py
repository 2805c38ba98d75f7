"""The rules of a policy, compiled: an ordered list of matches, each with what then; the first that holds decides.

``{rules: [{match, when, then: allow | ask | deny, reason}], default: allow | ask | deny, reads: [facts]}``. Without
``default`` a call that no rule is about is denied. Where the default is ``deny`` and the ability has the tag
``ask-by-default``, a person is asked instead. ``when`` is a condition in CEL (`expressions`), asked where the
match holds; one that is neither true nor false denies, whatever its rule says then.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Call, Decision, Effects, Object, Outcome, PolicyProblem
from deedbook.format import canonical
from deedbook.format.errors import BindingError, fault, raise_all
from deedbook.format.lint import violation
from deedbook.format.schema import foreign
from deedbook.policy import match
from deedbook.policy.gates import ASK_BY_DEFAULT
from deedbook.policy.match import AbilityFacts, Match, Steps, Test

from .expressions import LONGEST, Expression, Flaw, Invalid, Language, NoEngine, Unclear

_OUTCOMES: Final = ["allow", "ask", "deny"]
_REMEMBERED: Final = 4096

READS_SCHEMA: Final[Object] = {
    "description": "The facts that conditions look at, such as session.calls; exactly these are recorded",
    "type": "array",
    "uniqueItems": True,
    "items": {"type": "string", "minLength": 1},
}
"""The JSON Schema of the member ``reads`` of a policy's body."""

SETTINGS: Final[Object] = {
    "description": "Rules in order; the first whose match holds decides, else the default",
    "type": "object",
    "required": ["rules"],
    "properties": {
        "rules": {
            "description": "The rules, in order",
            "type": "array",
            "items": {
                "type": "object",
                "required": ["match", "then"],
                "properties": {
                    "match": match.SCHEMA,
                    "when": {
                        "description": "A condition in CEL over args, call, principal, role, skill and facts",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": LONGEST,
                    },
                    "then": {"description": "What happens to a call that matches", "enum": _OUTCOMES},
                    "reason": {
                        "description": "Why, for whoever is told of the decision",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 500,
                    },
                },
                "additionalProperties": False,
            },
        },
        "default": {"description": "What happens to a call that no rule matches; deny if left out", "enum": _OUTCOMES},
        "reads": READS_SCHEMA,
    },
    "additionalProperties": False,
}
"""The JSON Schema of the policy's body, draft 2020-12."""

NO_ENGINE: Final = (
    "conditions in CEL need their engine, which is not installed; run: pip install 'deedbook-policy-standard[cel]'"
)

_IN_MATCH: Final = re.compile("/rules/[0-9]+/match(/|$)").match
_SHAPE: Final = foreign(SETTINGS, place="policy kind rules")
_Key: TypeAlias = tuple[str, str, Effects, frozenset[str], frozenset[str], tuple[str, ...]]


@attrs.frozen(eq=False)
class Rule:
    """One rule: what it is about, its condition if it has one, and what then."""

    match: Match
    when: Expression | None
    decision: Decision


@attrs.frozen
class Step:
    """One rule as it is asked about the calls of an ability: its dynamic part, its condition, what then."""

    test: Test | None
    when: Expression | None
    decision: Decision


@attrs.frozen(eq=False)
class Plan:
    """The rules that are about one ability, in order, up to the first that holds for its every call.

    Where none has a condition they stand in *tests*, else in *steps*, so that only conditions cost time.
    """

    tests: tuple[tuple[Test, Decision], ...]
    steps: tuple[Step, ...]
    otherwise: Decision

    def decisions(self) -> Iterator[Decision]:
        """Yield every decision that may be taken, in order."""
        yield from (decision for _, decision in self.tests)
        yield from (step.decision for step in self.steps)
        yield self.otherwise


class RuleSet:
    """The rules of one policy. A decision names the index of its rule in ``signals["rule"]``; the default none.

    Each rule has one `Decision` object for all calls, so that a recorder of decisions may remember them by identity.
    Raises `BindingError` for a body with `problems`.
    """

    def __init__(self, settings: Object) -> None:
        raise_all(BindingError, (fault(each.code, each.message) for each in problems(settings)))
        self._language = _language(settings)
        self.rules = tuple(_compile_rule(index, rule, self._language) for index, rule in enumerate(settings["rules"]))
        self._default = default_decision(settings.get("default", "deny"))
        self._asked = default_decision("ask", f"by the ability's tag {ASK_BY_DEFAULT} a person decides")
        self._plans: dict[_Key, Plan] = {}

    def __call__(self, call: Call) -> Decision:
        """Return the decision of the first rule that holds for *call*, else the default."""
        key = (call.ability, call.kind, call.effects, call.tags, call.scopes, call.paths)
        plan = self._plans.get(key) or self._remember(key)
        if plan.steps:
            return self._weigh(plan, call)
        for test, decision in plan.tests:
            if test(call):
                return decision
        return plan.otherwise

    def plan(self, ability: AbilityFacts) -> Plan:
        """Return the rules as they are asked about the calls of *ability*: the static parts are decided."""
        steps: list[Step] = []
        asks = self._default.outcome == "deny" and ASK_BY_DEFAULT in ability.tags
        otherwise = self._asked if asks else self._default
        for rule in self.rules:
            if rule.match.could_match(ability):
                test = rule.match.test_for(ability)
                if test is None and rule.when is None:
                    otherwise = rule.decision
                    break
                steps.append(Step(test, rule.when, rule.decision))
        tests = [(step.test, step.decision) for step in steps if step.test and step.when is None]
        return Plan((), tuple(steps), otherwise) if len(tests) < len(steps) else Plan(tuple(tests), (), otherwise)

    def _remember(self, key: _Key) -> Plan:
        """Decide the static parts once for each ability; the memory is bounded, since ids may come from outside."""
        if len(self._plans) >= _REMEMBERED:
            self._plans.clear()
        return self._plans.setdefault(key, self.plan(AbilityFacts(*key)))

    def _weigh(self, plan: Plan, call: Call) -> Decision:
        """Decide with conditions; the call is made visible to them once, at the first that is asked."""
        view = None
        for step in plan.steps:
            if step.test is not None and not step.test(call):
                continue
            if step.when is None:
                return step.decision
            try:
                if view is None:
                    view = self._language.view(call)  # type: ignore[union-attr] # where a condition is, so is it
                if step.when.holds(view):
                    return step.decision
            except Unclear as why:
                return unclear_denial(step.decision, why)
        return plan.otherwise


def unclear_denial(decision: Decision, why: Unclear) -> Decision:
    """Return a denial: it is unknown whether the rule of *decision* holds."""
    rule = decision.signals["rule"]
    return Decision("deny", f"rule {rule + 1}: when cannot be decided: {why}", None, {"rule": rule, "unclear": True})


def _compile_rule(index: int, rule: Object, language: Language | None) -> Rule:
    then: Outcome = rule["then"]
    compiled = Match.compile(rule["match"], at=("rules", index, "match"), allows=then == "allow")
    said = "" if then == "allow" else f"rule {index + 1} says {then}"
    when = language.compile(rule["when"]) if language and "when" in rule else None
    return Rule(compiled, when, Decision(then, rule.get("reason", said), None, {"rule": index}))


def default_decision(outcome: Outcome, why: str = "") -> Decision:
    """Return the decision of a policy none of whose rules holds."""
    return Decision(outcome, "" if outcome == "allow" else f"no rule matches; {why or f'the default is {outcome}'}")


def read_named_facts(body: Object) -> frozenset[str]:
    """Return the facts that a policy's body names under ``reads``; the body may be malformed."""
    named = body.get("reads")
    return frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else frozenset()


def _language(settings: Object) -> Language | None:
    """Return the engine, if a condition is written."""
    return Language() if any("when" in rule for rule in settings["rules"]) else None


# --- what is wrong with a policy --------------------------------------------------------------------------------------


def problems(settings: Any) -> Iterator[PolicyProblem]:
    """Yield all that is wrong with a policy's body; about its matches, `Match.compile` says more than the schema."""
    shape = _SHAPE.violations(settings)
    for each in shape:
        if not _IN_MATCH(each.pointer):
            yield PolicyProblem(message=str(each), pointer=each.pointer)
    listed = settings.get("rules") if isinstance(settings, dict) else None
    rules = [pair for pair in enumerate(listed if isinstance(listed, list) else ()) if isinstance(pair[1], dict)]
    for index, rule in rules:
        if "match" in rule:
            yield from _match_problems(rule["match"], ("rules", index, "match"))
    yield from when_problems(rules, Language)
    if not shape:
        yield from _doubles(rules)


def _match_problems(body: Any, at: Steps) -> Iterator[PolicyProblem]:
    try:
        Match.compile(body, at=at)
    except BindingError as refused:
        pointer = violation(at, "").pointer
        yield from (PolicyProblem(code=each.code, message=each.message, pointer=pointer) for each in refused.errors)


def when_problems(rules: list[tuple[int, Object]], language_of: Callable[[], Language]) -> Iterator[PolicyProblem]:
    """Yield what is wrong with the conditions of rules, each with its index, as far as they compile alone."""
    conditions = [(index, rule["when"]) for index, rule in rules if _is_condition(rule.get("when"))]
    try:
        language = language_of() if conditions else None
    except NoEngine:
        for index, _ in conditions:
            yield when_problem(index, Flaw(NO_ENGINE), "NOT_AVAILABLE")
        return
    for index, text in conditions:
        try:
            language.compile(text)  # type: ignore[union-attr] # there is one where there are conditions
        except Invalid as invalid:
            yield from (when_problem(index, flaw) for flaw in invalid.flaws)


def _is_condition(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST


def when_problem(index: int, flaw: Flaw, code: str = "BINDING_INVALID") -> PolicyProblem:
    """Return a flaw in the condition of a rule as a problem with its place."""
    found = violation(("rules", index, "when"), flaw.message)
    return PolicyProblem(code=code, message=str(found), pointer=found.pointer, at=flaw.at)


def _doubles(rules: list[tuple[int, Object]]) -> Iterator[PolicyProblem]:
    """Yield the rules that are about nothing but what one before them decides.

    A match that allows holds for less than the same match that guards, so that a guard may follow it.
    """
    seen: dict[bytes, int] = {}
    for index, rule in rules:
        about = canonical.encode([rule["match"], rule.get("when")])
        allows = rule["then"] == "allow"
        first = seen.get(about + b"guards", seen.get(about + b"allows") if allows else None)
        if first is not None:
            found = violation(("rules", index), f"is about the same calls as rule {first + 1}; leave one of them out")
            yield PolicyProblem(message=str(found), pointer=found.pointer)
        seen.setdefault(about + (b"allows" if allows else b"guards"), index)
