"""The Cedar engine, the package ``cedarpy``: imported when a workspace has a policy of this kind, and not before."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import attrs

from deedbook.contract import Object
from deedbook.format.errors import BindingError, fault

MAX_RULES: Final = 1_000
"""The most policies of one body."""
MAX_TEXT: Final = 10_000
"""The most characters of one policy."""
NO_ENGINE: Final = (
    "policies of the kind cedar need their engine, which is not installed; run: "
    "pip install 'deedbook-policy-cedar[cedar]'"
)

_MAX_MESSAGE: Final = 300


class EngineError(Exception):
    """A policy that the engine does not accept; the message says why."""


@attrs.frozen
class Rule:
    """One parsed policy: its *index* in the body, its ``@id``, its effect, and its form in JSON."""

    index: int
    id: str
    effect: str
    reason: str
    parsed: Object

    @property
    def text(self) -> str:
        """The rule as the reason of a decision."""
        return f"{self.effect} {self.id!r}" + (f": {self.reason}" if self.reason else "")


class Answer(NamedTuple):
    """The answer of the engine: whether it allows, the policies that decided, and the errors of all policies."""

    allowed: bool
    policies: Sequence[str]
    errors: Sequence[str]


class Engine:
    """The functions of ``cedarpy``; make one with `load`."""

    def __init__(self, cedar: Any) -> None:
        self._cedar = cedar

    @classmethod
    def find(cls) -> "Engine | None":
        """Return the engine; ``None`` if it is not installed."""
        try:
            return cls(import_module("cedarpy"))
        except ImportError:
            return None

    @classmethod
    def load(cls) -> "Engine":
        """Return the engine; raises `BindingError` (``NOT_AVAILABLE``) if it is not installed."""
        found = cls.find()
        if found is None:
            raise BindingError(fault("NOT_AVAILABLE", NO_ENGINE))
        return found

    def parse(self, index: int, text: str) -> Rule:
        """Return the policy in *text*; raises `EngineError` unless it is exactly one, with an ``@id``."""
        try:
            found = json.loads(self._cedar.policies_to_json_str(text))
        except ValueError as problem:
            raise EngineError(shorten(str(problem))) from None
        policies = list(found["staticPolicies"].values())
        if found["templates"] or len(policies) != 1:
            raise EngineError(f"expected one policy without slots; found {_describe(found)}")
        annotations = policies[0].get("annotations") or {}
        name = annotations.get("id")
        if not name:
            raise EngineError('the policy has no name; begin it with an annotation such as @id("read-reports")')
        return Rule(index, name, policies[0]["effect"], annotations.get("reason") or "", policies[0])

    def validate(self, text: str, schema: Object) -> Iterator[str]:
        """Yield the faults of the policy in *text* under *schema* (in Cedar's JSON form)."""
        found = self._cedar.validate_policies(text, json.dumps(schema))
        if not found.validation_passed:
            yield from (shorten(each.error.removeprefix("for policy `policy0`, ")) for each in found.errors)

    def combine(self, rules: Sequence[Rule]) -> Any:
        """Return the policy set of *rules*, each under its ``@id``."""
        policies = {rule.id: rule.parsed for rule in rules}
        whole = {"templates": {}, "staticPolicies": policies, "templateLinks": []}
        return self._cedar.PolicySet.from_json_str(json.dumps(whole))

    def decide(self, request: Object, policies: Any, entities: Sequence[Object]) -> Answer:
        """Return the answer about *request*."""
        found = self._cedar.is_authorized(dict(request), policies, list(entities))
        said = found.diagnostics
        errors = [shorten(each) for each in said.errors]
        if found.decision is self._cedar.Decision.NoDecision and not errors:
            errors = ["there is no decision"]
        return Answer(found.decision is self._cedar.Decision.Allow, said.reasons, errors)


def parse_rules(engine: Engine, settings: Object) -> list[Rule]:
    """Return the rules of a valid body; raises `BindingError` for an invalid one."""
    try:
        rules = [engine.parse(index, rule["cedar"]) for index, rule in enumerate(settings["rules"])]
    except EngineError as problem:
        raise BindingError(fault("BINDING_INVALID", str(problem))) from None
    if len({rule.id for rule in rules}) < len(rules):
        raise BindingError(fault("BINDING_INVALID", "two policies have the same @id"))
    return rules


def shorten(message: str) -> str:
    """Return the first line of a message of the engine, of bounded length."""
    return message.split("\n", 1)[0][:_MAX_MESSAGE]


def _describe(found: Mapping[str, Any]) -> str:
    templates, policies = len(found["templates"]), len(found["staticPolicies"])
    return f"{templates} with slots, {policies} without"
