"""Policies about subjects: rules, each with a match, a condition in CEL, or both; the strictest that holds decides.

``{rules: [{match, when, then: allow | advisory | deny, reason}], default, thresholds, reads}``. A match names members
of the subject, each with the values that it may have. Rules are asked from the strictest answer to the loosest, in the
order of the file among equals, and the first that holds decides. If none holds, ``default`` decides, and without it
the answer is ``deny``. A condition that is neither true nor false denies.

Only rules whose match fits are looked at, however many there are: for each member and value the rules that accept it
are the bits of one number.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from deedbook.contract import (
    Decision,
    GateSpec,
    Host,
    Object,
    Outcome,
    PolicyProblem,
    PolicyTarget,
    Subject,
    SubjectCase,
)
from deedbook.format.errors import BindingError, fault, raise_all
from deedbook.policy.conditions import SCALAR, as_list

from .expressions import LONGEST, Expression, Language, Readers, Unclear, nest_facts, read_principal
from .ruleset import READS_SCHEMA, default_decision, read_named_facts, unclear_denial

OUTCOMES: Final = ("deny", "advisory", "allow")
"""The answers, the strictest first."""
_Mask: TypeAlias = int  # a bit for each rule, the strictest rule first
_Key: TypeAlias = str | tuple[type, Any]
_Member: TypeAlias = tuple[str, Mapping[_Key, _Mask], _Mask]  # a member's name; who accepts a value; who accepts any


def settings_schema(description: str, rule_keys: Object | None = None, keys: Object | None = None) -> Object:
    """Return the JSON Schema of a policy's body; *rule_keys* and *keys* are further members of a rule and the body."""
    outcome = {"enum": ["allow", "advisory", "deny"]}
    value = {"type": ["number", "string", "boolean", "array"], "items": {"type": ["number", "string"]}}
    rule = {
        "match": {
            "description": "Members of the subject, each with the values that it may have",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": [*SCALAR, "array"], "minItems": 1, "items": {"type": SCALAR}},
        },
        "when": {"description": "A condition in CEL", "type": "string", "minLength": 1, "maxLength": LONGEST},
        "then": {"description": "The answer if the rule holds", **outcome},
        "reason": {"description": "Why", "type": "string", "minLength": 1, "maxLength": 500},
    }
    return {
        "description": description,
        "type": "object",
        "required": ["rules"],
        "properties": {
            "rules": {
                "description": "The rules; the strictest that holds decides",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["then"],
                    "properties": {**rule, **(rule_keys or {})},
                    "additionalProperties": False,
                },
            },
            "default": {"description": "The answer if no rule holds; deny if left out", **outcome},
            "thresholds": {
                "description": "Values that conditions see as `thresholds`",
                "type": "object",
                "additionalProperties": {**value, "type": [*value["type"], "object"], "additionalProperties": value},
            },
            "reads": READS_SCHEMA,
            **(keys or {}),
        },
        "additionalProperties": False,
    }


def subject_spec(settings: Object, name: str, schema: Object, *, calls: bool = False) -> GateSpec:
    """Return the declaration of a policy kind with one subject."""
    return GateSpec(settings=settings, pure=True, calls=calls, subjects={name: Subject(schema=schema)})


@attrs.frozen(eq=False)
class SubjectRule:
    """One rule: what its match accepts by member, its condition, and its decision."""

    accepts: Mapping[str, frozenset[_Key]]
    when: Expression | None
    decision: Decision


class SubjectPolicy:
    """The base of policy kinds with rules about one subject. A decision names its rule in ``signals["rule"]``.

    Raises `BindingError` for a body with problems.
    """

    spec: ClassVar[GateSpec]
    subject: ClassVar[str]
    is_computed: ClassVar[bool] = False  # whether `read` adds members to the subject

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        from .subject_rulebook import problems  # noqa: PLC0415

        raise_all(BindingError, (fault(each.code, each.message) for each in problems(type(self), settings)))
        has_conditions = any("when" in rule for rule in settings["rules"])
        self._language = self.language(settings) if has_conditions else None
        rules = [self._compile_rule(index, rule) for index, rule in enumerate(settings["rules"])]
        self.rules = tuple(sorted(rules, key=self.strictness))
        self._all = (1 << len(rules)) - 1
        self._members = tuple(_members(self.rules))
        self._default = self.default(settings.get("default", "deny"))

    def decide(self, case: SubjectCase) -> Decision:
        """Return the decision of the strictest rule that holds, else the default."""
        waiting = self._find_fitting(self.read(case) if self.is_computed else case.value)
        view = None
        while waiting:
            lowest = waiting & -waiting
            waiting ^= lowest
            rule = self.rules[lowest.bit_length() - 1]
            if rule.when is None:
                return rule.decision
            try:
                if view is None:
                    view = self._language.view(case)  # type: ignore[union-attr] # where a condition is, so is it
                if rule.when.holds(view):
                    return rule.decision
            except Unclear as why:
                return self.unclear(rule, why)
        return self._default

    def _find_fitting(self, value: Object) -> _Mask:
        """Return the rules whose match fits *value*."""
        fitting = self._all
        for name, by_value, otherwise in self._members:
            found = value.get(name)
            fitting &= by_value.get(found if type(found) is str else value_key(found), otherwise)
        return fitting

    def find_deciding(self, value: Object) -> Iterator[int | None]:
        """Yield the rules that may decide about *value*, by index, as far as their matches tell; ``None``: default."""
        waiting = self._find_fitting(value)
        for place, rule in enumerate(self.rules):
            if waiting >> place & 1:
                yield rule.decision.signals["rule"]
                if rule.when is None:
                    return
        yield None

    def _compile_rule(self, index: int, body: Object) -> SubjectRule:
        then: Outcome = body["then"]
        accepts = {name: frozenset(map(value_key, as_list(values))) for name, values in body.get("match", {}).items()}
        when = self._language.compile(body["when"]) if self._language and "when" in body else None
        reason = body.get("reason", "" if then == "allow" else f"rule {index + 1} says {then}")
        return SubjectRule(accepts, when, Decision(then, reason, None, {"rule": index, **self.signals(body)}))

    # --- what a kind may change ---------------------------------------------------------------------------------------

    @classmethod
    def variables(cls) -> Object:
        """Return the JSON Schema of the subject as conditions see it."""
        return cls.spec.subjects[cls.subject].schema

    @classmethod
    def read(cls, case: SubjectCase) -> Object:
        """Return the subject as conditions see it."""
        return case.value

    @classmethod
    def signals(cls, rule: Object) -> Object:  # noqa: ARG003 - for kinds that have some
        """Return the signals of the decision of a rule."""
        return {}

    @classmethod
    def more_problems(cls, body: Object) -> Iterator[PolicyProblem]:  # noqa: ARG003 - as above
        """Yield what is wrong with the members of a body that only this kind has; its shape is checked before."""
        yield from ()

    def strictness(self, rule: SubjectRule) -> Any:
        """Return the key by which rules are sorted, the strictest first."""
        return OUTCOMES.index(rule.decision.outcome)

    def default(self, outcome: Outcome) -> Decision:
        """Return the decision if no rule holds."""
        return default_decision(outcome)

    def unclear(self, rule: SubjectRule, why: Unclear) -> Decision:
        """Return the decision if it is unknown whether *rule* holds."""
        return unclear_denial(rule.decision, why)

    # --- what the kernel asks before any decision ---------------------------------------------------------------------

    @classmethod
    def language(cls, body: Object) -> Language:
        """Return the language of a policy's conditions; raises `NoEngine`."""
        return Language(cls._readers(body), {cls.subject, "thresholds", "principal", "facts"})

    @classmethod
    def _readers(cls, body: Object) -> Readers:
        return {cls.subject: cls.read, "thresholds": partial(_constant, body.get("thresholds", {})), **_CONTEXT}

    @classmethod
    def check(cls, body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[PolicyProblem]:  # noqa: ARG003
        """Yield what is wrong with a body, misspelt fields in its conditions among it."""
        from .subject_rulebook import check  # noqa: PLC0415

        return check(cls, body)

    @staticmethod
    def reads(body: Object) -> Iterable[str]:
        """Return the facts that the body names under ``reads``."""
        return read_named_facts(body)

    @classmethod
    def lint(cls, body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[PolicyProblem]:  # noqa: ARG003
        """Yield the rules that never decide."""
        from .subject_rulebook import lint  # noqa: PLC0415

        return lint(cls, body)

    @classmethod
    def reachable(cls, body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[int | None]:  # noqa: ARG003
        """Return the rules that can decide, and ``None`` if the default can."""
        from .subject_rulebook import reachable  # noqa: PLC0415

        return reachable(cls, body)


def value_key(value: Any) -> _Key:
    """Return what is equal for equal scalars: ``true`` is not 1, and 1 is 1.0. No rule accepts what is no scalar."""
    kind = type(value)
    if kind is str:
        return str(value)
    return (float if kind is int else kind, value if kind in _SCALARS else None)


_SCALARS: Final = (int, float, bool)


def _members(rules: Sequence[SubjectRule]) -> Iterator[_Member]:
    names = dict.fromkeys(name for rule in rules for name in rule.accepts)
    for name in names:
        otherwise = sum(1 << place for place, rule in enumerate(rules) if name not in rule.accepts)
        by_value: dict[_Key, _Mask] = {}
        for place, rule in enumerate(rules):
            for key in rule.accepts.get(name, ()):
                by_value[key] = by_value.get(key, otherwise) | 1 << place
        yield name, by_value, otherwise


def _constant(value: Object, case: SubjectCase) -> Object:  # noqa: ARG001 - the shape of every reader
    return value


_CONTEXT: Final[Mapping[str, Callable[[SubjectCase], Any]]] = {
    "principal": read_principal,
    "role": lambda case: case.role,
    "skill": lambda case: case.skill,
    "mode": lambda case: case.mode,
    "now": lambda case: case.now,
    "facts": lambda case: nest_facts(case.facts),
}
"""What conditions see besides the subject and the thresholds."""
