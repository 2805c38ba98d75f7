"""The body of a policy of the kind ``rules``, held against the abilities that the policy is asked about.

What a condition sees is checked by the schemas of the abilities that its rule can be about. Found are rules that are
about no ability, rules that are never reached because an earlier one always decides, and rules that look at an argument
which no ability takes.
"""

from collections.abc import Iterator, Sequence

import attrs

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.format.lint import Violation, suggest, violation
from deedbook.policy.match import AbilityFacts

from .ruleset import Rule, RuleSet, problems, when_problem
from .vocabulary import flaws, unknown_argument


def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
    """Yield what is wrong with a body: with its rules, or, where these compile, with the arguments that they look at.

    A rule that denies or asks only where an argument is one that no ability takes guards nothing, which is a fault.
    """
    found = list(problems(body))
    yield from found
    if found or not _looks_at_arguments(body):
        return
    for index, rule in enumerate(RuleSet(body).rules):
        args = _arguments(rule, abilities)
        yield from _flaws(index, rule, body.get("reads", ()), args)
        yield from _never(body["rules"][index], index, rule, args)


def lint(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
    """Yield the rules that never decide, and those whose match looks at an argument that no ability takes.

    A rule of the second sort allows nothing, or holds whenever the rest of its match does: the argument is always
    absent.
    """
    made = RuleSet(body)
    yield from _idle(body, made, [_facts(each) for each in abilities])
    for index, rule in enumerate(made.rules):
        for pointer, why in _unknown(body["rules"][index], _arguments(rule, abilities)):
            message = f"looks at no argument: {why}; {_consequence(body['rules'][index], pointer)}"
            yield PolicyProblem(rule=index, pointer=_at_argument(index, pointer).pointer, message=message)
        yield from _find_evasions(body["rules"][index], index, abilities)


def _find_evasions(rule: Object, index: int, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
    """Yield where a rule that denies or asks compares a path as text: another spelling of it evades the rule."""
    if rule["then"] == "allow":
        return
    paths = {path for each in abilities for path in each.paths}
    for pointer, condition in _pointers(rule).items():
        if pointer in paths and (not isinstance(condition, dict) or condition.keys() & {"equals", "in"}):
            message = f"compares the path {pointer} as text, so ./ before it evades the rule; use {{under: …}} or paths"
            yield PolicyProblem(rule=index, pointer=_at_argument(index, pointer).pointer, message=message)


def reachable(body: Object, abilities: Sequence[PolicyTarget]) -> frozenset[int | None]:
    """Return the indices of the rules that can decide about some ability, and ``None`` if the default can."""
    made = RuleSet(body)
    plans = (made.plan(_facts(each)) for each in abilities)
    return frozenset(decision.signals.get("rule") for plan in plans for decision in plan.decisions())


def _idle(body: Object, made: RuleSet, about: Sequence[AbilityFacts]) -> Iterator[PolicyProblem]:
    deciding = [[decision.signals.get("rule") for decision in made.plan(facts).decisions()] for facts in about]
    for index, rule in enumerate(made.rules):
        concerned = [rules for facts, rules in zip(about, deciding, strict=True) if rule.match.could_match(facts)]
        if not concerned:
            near = _near(body["rules"][index], [facts.id for facts in about])
            yield PolicyProblem(rule=index, message=f"is about no ability that this policy is asked about{near}")
        elif not any(index in rules for rules in concerned):
            before = sorted({rules[-1] for rules in concerned if rules[-1] is not None})
            yield PolicyProblem(rule=index, message=_describe_unreached(before), other_rules=tuple(before))


def _describe_unreached(before: Sequence[int]) -> str:
    rules = ", ".join(f"rule {first + 1}" for first in before)
    return f"is never reached: {rules} always decide{'s' if len(before) == 1 else ''} before it"


def _near(rule: Object, known: Sequence[str]) -> str:
    """Return which ability was probably meant by a name in the match of *rule*, in words; empty if none was."""
    return next((near for name in _list_abilities(rule) if (near := suggest(name, known))), "")


def _list_abilities(rule: Object) -> Sequence[str]:
    named: str | Sequence[str] = rule["match"].get("abilities", ())
    return [named] if isinstance(named, str) else named


def _facts(target: PolicyTarget) -> AbilityFacts:
    return AbilityFacts(target.id, target.kind, target.effects, target.tags, target.scopes, target.paths)


def _looks_at_arguments(body: Object) -> bool:
    """Return whether a rule looks at arguments: by a condition, or in its match."""
    return any("when" in rule or _pointers(rule) for rule in body["rules"])


def _pointers(rule: Object) -> Object:
    """Return the conditions on arguments in a rule's match, by JSON pointer."""
    found: Object = rule["match"].get("args", {})
    return found


def _unknown(rule: Object, args: list[Sequence[Object]]) -> Iterator[tuple[str, str]]:
    """Yield each JSON pointer in a rule's match that leads to no argument of any ability, and why."""
    for pointer in _pointers(rule):
        if why := unknown_argument(pointer, args):
            yield pointer, why


def _never(body: Object, index: int, rule: Rule, args: list[Sequence[Object]]) -> Iterator[PolicyProblem]:
    """Yield what keeps a rule that guards from ever holding; a pack's may guard what this workspace has not."""
    if rule.decision.outcome == "allow":
        return
    for pointer, why in _unknown(body, args):
        if not _wants_absent(body, pointer):
            found = _at_argument(index, pointer, f"{why}; {_consequence(body, pointer)}")
            yield PolicyProblem(rule=index, pointer=found.pointer, message=str(found), own=True)


def _wants_absent(rule: Object, pointer: str) -> bool:
    """Return whether the argument at *pointer* is wanted absent."""
    wanted = _pointers(rule)[pointer]
    return isinstance(wanted, dict) and wanted.get("present") is False


def _consequence(rule: Object, pointer: str) -> str:
    return "it is always absent" if _wants_absent(rule, pointer) else "this rule can never hold"


def _at_argument(index: int, pointer: str, message: str = "") -> Violation:
    return violation(("rules", index, "match", "args", pointer), message)


def _arguments(rule: Rule, abilities: Sequence[PolicyTarget]) -> list[Sequence[Object]]:
    """Return the schemas of the arguments of each ability that *rule* can be about; none where one is not known."""
    found = [each for each in abilities if rule.match.could_match(_facts(each))]
    return [each.takes for each in found] if all(each.takes for each in found) else []


def _flaws(index: int, rule: Rule, reads: Sequence[str], args: list[Sequence[Object]]) -> Iterator[PolicyProblem]:
    for flaw in flaws(rule.when, args, reads) if rule.when else ():
        yield attrs.evolve(when_problem(index, flaw), rule=index)
