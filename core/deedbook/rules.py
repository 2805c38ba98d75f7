"""The policy kind ``rules``: an ordered list of matches, each with what then; the first that holds decides.

``{rules: [{match, then: allow | ask | deny, reason}], default: allow | ask | deny}``. Without ``default`` a call that
no rule is about is denied.
"""

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from . import match
from .contracts import Call, Decision, Effects, GateSpec, Host, Object, Outcome
from .errors import BindingError, DomainError, fault, raise_all
from .lint import violation
from .match import AbilityFacts, Match, Steps, Test
from .schema import foreign

_OUTCOMES: Final = ["allow", "ask", "deny"]
_REMEMBERED: Final = 4096

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
                    "when": {"description": "A condition in CEL; not available in this release", "type": "string"},
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
    },
    "additionalProperties": False,
}
"""The JSON Schema of the policy's body, draft 2020-12."""

_IN_MATCH: Final = re.compile("/rules/[0-9]+/match(/|$)").match
_SHAPE: Final = foreign(SETTINGS, place="policy kind rules")
_Key: TypeAlias = tuple[str, str, Effects, frozenset[str], frozenset[str], tuple[str, ...]]


@attrs.frozen(eq=False)
class Plan:
    """The rules that are about one ability, in order, up to the first that holds for its every call."""

    tests: tuple[tuple[Test, Decision], ...]
    otherwise: Decision


class Rules:
    """A policy of the kind ``rules``. A decision names the index of its rule in ``signals["rule"]``; the default none.

    Each rule has one `Decision` object for all calls, so that whoever records decisions may remember them by identity.
    """

    spec: ClassVar[GateSpec] = GateSpec(settings=SETTINGS, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        raise_all(BindingError, _faults(settings))
        self._rules = tuple(_compiled(index, rule) for index, rule in enumerate(settings["rules"]))
        self._default = _default(settings.get("default", "deny"))
        self._plans: dict[_Key, Plan] = {}

    def __call__(self, call: Call) -> Decision:
        """Return the decision of the first rule that holds for *call*, else the default."""
        key = (call.ability, call.kind, call.effects, call.tags, call.scopes, call.paths)
        plan = self._plans.get(key) or self._plan(key)
        for test, decision in plan.tests:
            if test(call):
                return decision
        return plan.otherwise

    def _plan(self, key: _Key) -> Plan:
        """Decide the static parts once for each ability; the memory is bounded, since ids may come from outside."""
        plan = _plan(self._rules, self._default, AbilityFacts(*key))
        if len(self._plans) >= _REMEMBERED:
            self._plans.clear()
        return self._plans.setdefault(key, plan)


def _plan(rules: tuple[tuple[Match, Decision], ...], default: Decision, ability: AbilityFacts) -> Plan:
    tests: list[tuple[Test, Decision]] = []
    for rule, decision in rules:
        if rule.could_match(ability):
            test = rule.test_for(ability)
            if test is None:
                return Plan(tuple(tests), decision)
            tests.append((test, decision))
    return Plan(tuple(tests), default)


def _compiled(index: int, rule: Object) -> tuple[Match, Decision]:
    then: Outcome = rule["then"]
    compiled = Match.compile(rule["match"], at=("rules", index, "match"), allows=then == "allow")
    said = "" if then == "allow" else f"rule {index + 1} says {then}"
    return compiled, Decision(then, rule.get("reason", said), None, {"rule": index})


def _default(outcome: Outcome) -> Decision:
    return Decision(outcome, "" if outcome == "allow" else f"no rule matches; the default is {outcome}")


def _faults(settings: Any) -> Iterator[DomainError]:
    """Yield all that is wrong with a policy's body; about its matches, `Match.compile` says more than the schema."""
    for each in _SHAPE.violations(settings):
        if not _IN_MATCH(each.pointer):
            yield fault("BINDING_INVALID", str(each))
    rules = settings.get("rules") if isinstance(settings, dict) else None
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, dict):
            yield from _rule_faults(rule, ("rules", index))


def _rule_faults(rule: Object, at: Steps) -> Iterator[DomainError]:
    if "when" in rule:
        why = "conditions in CEL are not in this release; say it with match, or leave the rule out"
        yield fault("NOT_AVAILABLE", str(violation((*at, "when"), why)))
    if "match" in rule:
        yield from _match_faults(rule["match"], (*at, "match"))


def _match_faults(body: Any, at: Steps) -> Iterator[DomainError]:
    try:
        Match.compile(body, at=at)
    except BindingError as refused:
        yield from refused.errors
