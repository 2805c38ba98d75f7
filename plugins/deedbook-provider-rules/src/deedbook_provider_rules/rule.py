"""Rules of a skill: read from ``metadata.deedbook.rules`` of its front matter, checked, and matched to a request.

Skills may come from anyone, so patterns are RE2: linear time, no backreferences, no look-around.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

import attrs
import re2

from deedbook import Failed, Json, Object, Skill

from .template import Filling, Reference, references

MAX_RULES: Final = 100
MAX_STEPS: Final = 50
MAX_PATTERN: Final = 1000


@attrs.frozen
class Step:
    """One call of an ability; *args* and *description* are templates.

    An *optional* step may fail, or lack a value for its arguments: then its result is ``{"error": {code, message}}``.
    """

    ability: str
    args: dict[str, Json]
    description: str
    optional: bool = False


@attrs.frozen
class Rule:
    """What is done when a request fits *pattern*. *place* names rule and skill, for messages.

    *answer* has the paragraphs of the answer, which are templates. A rule that does not *complete* the request does
    only a part of it.
    """

    place: str
    pattern: Any
    steps: tuple[Step, ...]
    answer: tuple[str, ...]
    completes: bool = True

    def match(self, request: str) -> "Fit | None":
        """Return how *request* fits, or ``None``."""
        found = self.pattern.search(request)
        return Fit(self, found.groupdict()) if found else None


@attrs.frozen
class Fit:
    """A rule that fits a request, with what its named *groups* matched."""

    rule: Rule
    groups: Mapping[str, str | None]

    def filling(self, results: list[Json] | None = None, step: int | None = None) -> Filling:
        """Return what fills the rule's templates; *step* (from 1) only names the place."""
        place = self.rule.place if step is None else f"{self.rule.place}: step s{step}"
        return Filling(place, self.groups, results or [])


def fit(skill: Object | None, request: str) -> Fit:
    """Return the first rule of *skill* that fits *request*.

    Raises `Failed`: ``NO_RULE`` where none does, ``SOURCE_INVALID`` where any of its rules is wrong.
    """
    rules = rules_of(skill)
    found = next((fitting for fitting in (rule.match(request) for rule in rules) if fitting), None)
    if found:
        return found
    if skill is None:
        why = "the run has no skill, and the rules stand in skills. `deedbook run` chooses a skill by its triggers"
        raise Failed("NO_RULE", f"{why}; a call of a flow has one only through the flow under-skill")
    patterns = "; ".join(rule.pattern.pattern for rule in rules) or "none (metadata.deedbook.rules)"
    raise Failed("NO_RULE", f"no rule of skill {skill['name']} fits the request; its patterns: {patterns}")


def rules_of(skill: Object | None) -> tuple[Rule, ...]:
    """Return the rules of *skill*, all checked; none where it has none."""
    if skill is None:
        return ()
    ours = skill["metadata"].get("deedbook", {})
    listed = ours.get("rules", []) if isinstance(ours, dict) else None
    place = f"metadata.deedbook.rules of skill {skill['name']}"
    if not isinstance(listed, list) or len(listed) > MAX_RULES:
        raise _wrong(place, f"a list of at most {MAX_RULES} rules is needed")
    return tuple(_rule(item, f"rule {number} of skill {skill['name']}") for number, item in enumerate(listed, 1))


def check_skill(skill: Skill) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the rules of *skill*: a JSON pointer into its front matter, and a message."""
    ours = skill.metadata.get("deedbook", {})
    listed = ours.get("rules", []) if isinstance(ours, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_RULES:
        yield "/metadata/deedbook/rules", f"metadata.deedbook.rules: a list of at most {MAX_RULES} rules is needed"
        return
    for number, item in enumerate(listed, 1):
        try:
            _rule(item, f"rule {number}")
        except Failed as problem:
            yield f"/metadata/deedbook/rules/{number - 1}{_within(item, str(problem))}", str(problem)


def _within(body: object, said: str) -> str:
    """Return the pointer to the part of a rule that a message is about, as far as it says so."""
    step = re.match(r"rule \d+: step s(\d+)", said)
    if step and isinstance(body, dict):
        return f"/steps/{int(step[1]) - 1}"
    return next((f"/{part}" for part in ("pattern", "answer", "steps") if f": {part}" in said), "")


def _rule(body: object, place: str) -> Rule:
    told = _fields(body, place, {"pattern": str, "steps": list, "answer": (str, list)}, {"completes": bool})
    pattern = _pattern(told["pattern"], place)
    if not 1 <= len(told["steps"]) <= MAX_STEPS:
        raise _wrong(place, f"1 to {MAX_STEPS} steps are needed")
    steps = tuple(_step(item, f"{place}: step s{number}") for number, item in enumerate(told["steps"], 1))
    rule = Rule(place, pattern, steps, _paragraphs(told["answer"], place), told.get("completes", True))
    _check_references(rule)
    return rule


def _step(body: object, place: str) -> Step:
    told = _fields(body, place, {"ability": str}, {"args": dict, "description": str, "optional": bool})
    description = told.get("description", f"Use {told['ability']}")
    return Step(told["ability"], told.get("args", {}), description, told.get("optional", False))


def _paragraphs(answer: str | list[Any], place: str) -> tuple[str, ...]:
    texts = [answer] if isinstance(answer, str) else answer
    if not texts or not all(isinstance(each, str) for each in texts):
        raise _wrong(place, "answer has to be a text, or a list of texts with at least one")
    return tuple(texts)


_Kinds: TypeAlias = Mapping[str, type | tuple[type, ...]]


def _fields(body: object, place: str, needed: _Kinds, more: _Kinds) -> dict[str, Any]:
    known = {**needed, **more}
    if not isinstance(body, dict):
        raise _wrong(place, f"a mapping with {', '.join(known)} is needed")
    for key, value in body.items():
        if key not in known:
            raise _wrong(place, f"{key!r} is not known; known are {', '.join(known)}")
        wanted = known[key]
        if not isinstance(value, wanted):
            kinds = wanted if isinstance(wanted, tuple) else (wanted,)
            raise _wrong(place, f"{key} has to be a {' or a '.join(_YAML_NAMES[kind] for kind in kinds)}")
    if absent := [key for key in needed if key not in body]:
        raise _wrong(place, f"{', '.join(absent)} is missing")
    return cast("dict[str, Any]", body)


_YAML_NAMES: Final[Mapping[type, str]] = {str: "text", list: "list", dict: "mapping", bool: "boolean"}


def _pattern(text: str, place: str) -> Any:
    if not 1 <= len(text) <= MAX_PATTERN:
        raise _wrong(place, f"a pattern has 1 to {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as problem:
        reason = problem.args[0].decode(errors="replace") if problem.args else "unknown"
        raise _wrong(place, f"pattern is not RE2 (https://github.com/google/re2/wiki/Syntax): {reason}") from None


def _check_references(rule: Rule) -> None:
    """Refuse what can never have a value: a group the pattern has not, a step that is not earlier."""
    for number, step in enumerate(rule.steps, 1):
        place = f"{rule.place}: step s{number}"
        _check(references(step.args), rule, number, place)
        _check(references(step.description), rule, 1, f"{place}: description")
    _check(references(list(rule.answer)), rule, len(rule.steps) + 1, f"{rule.place}: answer")


def _check(found: Iterator[Reference], rule: Rule, before: int, place: str) -> None:
    for reference in found:
        if reference.step >= before:
            raise _wrong(place, f"${{{reference.name}}} is not the result of an earlier step")
        if not reference.step and reference.name not in rule.pattern.groupindex:
            groups = ", ".join(rule.pattern.groupindex) or "none"
            raise _wrong(place, f"${{{reference.name}}} is no group of the pattern; its groups: {groups}")


def _wrong(place: str, why: str) -> Failed:
    return Failed("SOURCE_INVALID", f"{place}: {why}")
