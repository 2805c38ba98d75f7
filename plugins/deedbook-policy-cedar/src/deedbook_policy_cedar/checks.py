"""The checks of a body before any call: each policy parses, has its own name, and fits the abilities' schemas."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.contract.pointers import join_pointer

from .engine import MAX_RULES, MAX_TEXT, NO_ENGINE, Engine, EngineError, Rule
from .schemas import build_schema

_UNKNOWN: Final = "unrecognized action"
"""The beginning of what the engine says of an ability that the schema lacks."""


def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
    """Yield the problems of a body that may be malformed. Without *abilities*, policies are only parsed."""
    texts = list(_texts(body))
    if not texts:
        return
    engine = Engine.find()
    if engine is None:
        yield PolicyProblem(message=NO_ENGINE, pointer="/rules", code="NOT_AVAILABLE")
        return
    schema = build_schema(abilities) if abilities else None
    named: dict[str, int] = {}
    for index, text in texts:
        try:
            rule = engine.parse(index, text)
        except EngineError as problem:
            yield _problem(index, str(problem))
            continue
        yield from _check_name(rule, named)
        yield from _validate(engine, rule, text, schema) if schema else ()


def _texts(body: Object) -> Iterator[tuple[int, str]]:
    """Yield the texts that the settings' schema accepts; it reports the others."""
    rules: Any = body.get("rules")
    for index, rule in enumerate(rules[:MAX_RULES] if isinstance(rules, list) else ()):
        text = rule.get("cedar") if isinstance(rule, dict) else None
        if isinstance(text, str) and 0 < len(text) <= MAX_TEXT:
            yield index, text


def _check_name(rule: Rule, named: dict[str, int]) -> Iterator[PolicyProblem]:
    first = named.setdefault(rule.id, rule.index)
    if first != rule.index:
        why = f"another policy has the @id {rule.id!r}; names are unique within a policy"
        yield PolicyProblem(message=why, pointer=_pointer(rule.index), rule=rule.index, other_rules=(first,))


def _validate(engine: Engine, rule: Rule, text: str, schema: Object) -> Iterator[PolicyProblem]:
    """Yield the faults under *schema*; those that follow from an unknown ability are left out."""
    faults = list(engine.validate(text, schema))
    unknown = [why for why in faults if _UNKNOWN in why]
    for why in unknown or faults:
        yield _problem(rule.index, why, own=bool(unknown))


def _problem(index: int, message: str, *, own: bool = False) -> PolicyProblem:
    return PolicyProblem(message=message, pointer=_pointer(index), rule=index, own=own)


def _pointer(index: int) -> str:
    return join_pointer("rules", index, "cedar")
