"""The policy kind ``cedar``: Cedar decides, and every answer but a clean Allow denies.

Cedar skips a policy whose evaluation fails, also a ``forbid``. So a decision with errors denies here, whatever it is.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from deedbook.contract import Call, Decision, GateSpec, Host, Object, PolicyProblem, PolicyTarget, deny

from .engine import MAX_RULES, MAX_TEXT, Engine, parse_rules
from .requests import build_entities, build_request, find_unsupported

SETTINGS: Final[Object] = {
    "description": "Policies in Cedar. A call is allowed if a permit applies, no forbid does, and nothing fails",
    "type": "object",
    "required": ["rules"],
    "properties": {
        "rules": {
            "description": "The policies; their order has no meaning",
            "type": "array",
            "maxItems": MAX_RULES,
            "items": {
                "type": "object",
                "required": ["cedar"],
                "properties": {
                    "cedar": {
                        "description": "One policy, with a unique annotation @id; @reason is shown with its decisions",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": MAX_TEXT,
                    }
                },
                "additionalProperties": False,
            },
        }
    },
    "additionalProperties": False,
}
"""The JSON Schema of the policy's body, draft 2020-12."""

_NO_PERMIT: Final = deny("no permit applies")


class Cedar:
    """Allows a call that Cedar allows without an error; denies every other."""

    spec: ClassVar[GateSpec] = GateSpec(settings=SETTINGS, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - every plugin has this shape
        self._engine = Engine.load()
        rules = parse_rules(self._engine, settings)
        self._policies = self._engine.combine(rules)
        self._decisions = {
            rule.id: Decision("allow" if rule.effect == "permit" else "deny", rule.text, signals={"rule": rule.index})
            for rule in rules
        }

    def __call__(self, call: Call) -> Decision:
        """Return Cedar's decision with the rule that made it; an error, or a value that Cedar lacks, denies."""
        unsupported = find_unsupported(call.args)
        if unsupported is not None:
            return deny(f"Cedar cannot judge this call: {unsupported}")
        answer = self._engine.decide(build_request(call), self._policies, build_entities(call))
        if answer.errors:
            return deny(f"Cedar reports an error, which denies: {answer.errors[0]}")
        found = [self._decisions[name] for name in answer.policies if name in self._decisions]
        wanted = "allow" if answer.allowed else "deny"
        decisions = [each for each in found if each.outcome == wanted]
        if not decisions:
            return _NO_PERMIT
        return min(decisions, key=lambda each: each.signals["rule"])

    @staticmethod
    def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
        """Yield the policies that do not parse, and those that do not fit the schemas of *abilities*."""
        from .checks import check  # noqa: PLC0415 - a start without changes does not check

        return check(body, abilities)
