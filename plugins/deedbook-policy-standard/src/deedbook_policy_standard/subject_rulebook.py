"""The body of a policy about subjects, checked before it decides anything: its shape, its conditions, its rules."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import MODES, Object, PolicyProblem
from deedbook.format import canonical
from deedbook.format.lint import suggest, violation
from deedbook.format.schema import Validator, foreign
from deedbook.policy.conditions import as_list

from .expressions import LONGEST
from .ruleset import when_problem, when_problems
from .subject_rules import SubjectPolicy, value_key
from .vocabulary import PRINCIPAL, TEXT_OR_NULL, facts_schema, signal_flaws

Kind: TypeAlias = type[SubjectPolicy]

_MOST_CASES: Final = 10_000
_OTHER: Final = "\x00 any other value"


def check(kind: Kind, body: Object) -> Iterator[PolicyProblem]:
    """Yield what is wrong with a body, misspelt fields in its conditions among it."""
    found = list(problems(kind, body))
    yield from found
    conditions = (
        [(index, rule["when"]) for index, rule in enumerate(body["rules"]) if "when" in rule] if not found else ()
    )
    if conditions:
        language = kind.language(body)
        variables = _variables(kind, body)
        for index, text in conditions:
            for flaw in signal_flaws(language.compile(text), variables):
                yield attrs.evolve(when_problem(index, flaw), rule=index)


def problems(kind: Kind, body: Any) -> Iterator[PolicyProblem]:
    """Yield what is wrong with a body in itself."""
    hashable: Any = kind  # mypy takes classes for not hashable
    shape = _shape(hashable).violations(body)
    yield from (PolicyProblem(message=str(each), pointer=each.pointer) for each in shape)
    listed = body.get("rules") if isinstance(body, dict) else None
    rules = [pair for pair in enumerate(listed if isinstance(listed, list) else ()) if isinstance(pair[1], dict)]
    yield from when_problems(rules, lambda: kind.language({}))
    if not shape:
        for index, rule in rules:
            yield from _rule_problems(kind, index, rule)
        yield from _doubles(rules)
        yield from kind.more_problems(body)


def lint(kind: Kind, body: Object) -> Iterator[PolicyProblem]:
    """Yield the rules that never decide, since stricter rules always do."""
    deciding = reachable(kind, body)
    for index in range(len(body["rules"])):
        if index not in deciding:
            why = "is never reached: rules that are as strict or stricter always decide before it"
            yield PolicyProblem(rule=index, message=why)


def reachable(kind: Kind, body: Object) -> frozenset[int | None]:
    """Return the rules that can decide about some subject, and ``None`` if the default can.

    Every combination of the values that matches name is tried. Of too many, all rules count as reachable.
    """
    host: Any = None
    policy = kind(body, host)
    values = _values(kind, body)
    if prod(map(len, values.values())) > _MOST_CASES:
        return frozenset([*range(len(body["rules"])), None])
    cases = (dict(zip(values, each, strict=True)) for each in product(*values.values()))
    return frozenset(index for case in cases for index in policy.find_deciding(case))


def _values(kind: Kind, body: Object) -> Mapping[str, Sequence[Any]]:
    """Return the values of each member that a match names: all that it can have, or the named ones and another."""
    named: dict[str, dict[Any, Any]] = {}
    for rule in body["rules"]:
        for name, values in rule.get("match", {}).items():
            named.setdefault(name, {}).update((value_key(value), value) for value in as_list(values))
    properties = kind.variables()["properties"]
    return {name: properties[name].get("enum") or [*values.values(), _OTHER] for name, values in named.items()}


def _variables(kind: Kind, body: Object) -> Mapping[str, Object]:
    return {
        kind.subject: kind.variables(),
        "thresholds": _schema_of(body.get("thresholds", {})),
        "principal": PRINCIPAL,
        "role": TEXT_OR_NULL,
        "skill": TEXT_OR_NULL,
        "mode": {"type": "string", "enum": list(MODES)},
        "now": {"type": "string"},
        "facts": facts_schema(body.get("reads", ())),
    }


def _schema_of(value: Any) -> Object:
    """Return the JSON Schema of thresholds: what a condition may ask of them is what is written."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _schema_of(each) for name, each in value.items()}}
    names = {str: "string", bool: "boolean", list: "array"}
    return {"type": names.get(type(value), "number")}


def _rule_problems(kind: Kind, index: int, rule: Object) -> Iterator[PolicyProblem]:
    if "match" not in rule and not 0 < len(rule.get("when", "")) <= LONGEST:
        found = violation(("rules", index), "has neither match nor when; write one, or use default")
        yield PolicyProblem(message=str(found), pointer=found.pointer, rule=index)
    for name, values in rule.get("match", {}).items():
        for why in _match_problems(kind, name, as_list(values)):
            found = violation(("rules", index, "match", name), why)
            yield PolicyProblem(message=str(found), pointer=found.pointer, rule=index)


def _match_problems(kind: Kind, name: str, values: Sequence[Any]) -> Iterator[str]:
    subject, properties = kind.subject, kind.variables()["properties"]
    hashable: Any = kind
    schema = properties.get(name)
    if schema is None:
        yield f"a {subject} has no {name}{suggest(name, properties)}; known: {', '.join(sorted(properties))}"
    elif schema.get("type") in ("array", "object"):
        yield f"{name} of a {subject} is no single value; ask about it in when"
    else:
        for value in values:
            if not _member(hashable, name).valid(value):
                known = schema.get("enum", ())
                hint = suggest(value, map(str, known)) if isinstance(value, str) else ""
                yield f"{name} is never {value!r:.80}{hint}"


@cache
def _shape(kind: Kind) -> Validator:
    return foreign(kind.spec.settings, place="policy kind")


@cache
def _member(kind: Kind, name: str) -> Validator:
    return foreign(kind.variables()["properties"][name], place="match")


def _doubles(rules: Sequence[tuple[int, Object]]) -> Iterator[PolicyProblem]:
    """Yield the rules that hold for the same subjects as an earlier one."""
    seen: dict[bytes, int] = {}
    for index, rule in rules:
        first = seen.setdefault(canonical.encode([rule.get("match"), rule.get("when")]), index)
        if first != index:
            found = violation(("rules", index), f"holds where rule {first + 1} does; leave one of them out")
            yield PolicyProblem(message=str(found), pointer=found.pointer, rule=index)
