"""Rules that send a request to a later model of the list: by earlier messages, an answer or an error."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from deedbook import Failed, IntakeError, Object, parse

CODES: Final = ("INTAKE_REFUSED", "MALFORMED_AGENT_MESSAGE", "NOT_RECORDED", "NO_RULE", "PROVIDER_ERROR")
"""The codes of failures that providers report; denials and limits are no failures of a model."""
_DEFAULT: Final = ("PROVIDER_ERROR",)
SETTINGS: Final[Object] = {
    "type": "array",
    "maxItems": 20,
    "items": {
        "type": "object",
        "required": ["when", "to"],
        "properties": {
            "when": {
                "enum": ["malformed", "rework", "max_tokens", "safety", "error"],
                "description": "malformed: messages of the role were refused. rework: a reviewer sent the work back. "
                "max_tokens, safety: an answer was cut off, or refused. error: asking again cannot mend the failure.",
            },
            "codes": {
                "type": "array",
                "items": {"enum": [*CODES]},
                "minItems": 1,
                "uniqueItems": True,
                "default": [*_DEFAULT],
                "description": "Codes of the failure; only for error.",
            },
            "after": {
                "type": "integer",
                "minimum": 1,
                "maximum": 20,
                "default": 1,
                "description": "After how many refused messages; only for malformed.",
            },
            "to": {"type": "string", "minLength": 1, "description": "The one of models that is asked."},
        },
        "additionalProperties": False,
    },
    "description": "When a request goes to a later one of models.",
}


@attrs.frozen
class Rule:
    """Send a request to the model at place *to* of the list *when* something happened.

    Malformed messages count *after* so many times, errors with one of the *codes*.
    """

    when: str
    to: int
    after: int = 1
    codes: tuple[str, ...] = _DEFAULT


@attrs.frozen
class Escalation:
    """The rules of a tier, in order."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def read(cls, given: Sequence[Object], models: Sequence[str]) -> "Escalation":
        """Return the rules of YAML, which fit `SETTINGS`; raises `Failed` for what no schema can say."""
        return cls(tuple(_rule(number, each, models) for number, each in enumerate(given)))

    def first(self, request: Object) -> int:
        """Return the place of the model that is asked first."""
        if not self.rules:
            return 0
        refused, rework = _history(request)
        due = (each.to for each in self.rules if _is_due(each, refused, rework=rework))
        return max(due, default=0)

    def next(self, response: Object) -> int | None:
        """Return the place of the model that is asked after this answer; ``None`` if the answer stands."""
        return max((each.to for each in self.rules if each.when == response["finish_reason"]), default=None)

    def next_after(self, problem: Failed) -> int | None:
        """Return the place of the model that is asked after this failure; ``None`` if the failure stands."""
        due = (each.to for each in self.rules if each.when == "error" and problem.code in each.codes)
        return max(due, default=None)


def _rule(number: int, given: Object, models: Sequence[str]) -> Rule:
    place = f"escalate/{number}"
    if given["to"] not in models:
        why = f"{place}/to: {given['to']!r} is not one of models ({', '.join(models)}); add it there"
        raise Failed("BINDING_INVALID", why)
    if "after" in given and given["when"] != "malformed":
        raise Failed("BINDING_INVALID", f"{place}/after: only malformed messages are counted; leave it out")
    if "codes" in given and given["when"] != "error":
        raise Failed("BINDING_INVALID", f"{place}/codes: only errors have codes; leave it out")
    codes = tuple(given.get("codes", _DEFAULT))
    return Rule(given["when"], models.index(given["to"]), given.get("after", 1), codes)


def _is_due(rule: Rule, refused: int, *, rework: bool) -> bool:
    return (rule.when == "malformed" and refused >= rule.after) or (rule.when == "rework" and rework)


def _history(request: Object) -> tuple[int, bool]:
    """Return how many messages of the role were refused, and whether a reviewer sent its work back."""
    handovers = list(_handovers(request))
    return sum("violation" in each for each in handovers), any("feedback" in each for each in handovers)


def _handovers(request: Object) -> Iterator[dict[str, Any]]:
    """Yield the user messages that are JSON objects, as flows with roles send them."""
    for message in request["messages"]:
        content = message["content"]
        if message["role"] == "user" and isinstance(content, str) and content.startswith("{"):
            try:
                value = parse(content)
            except IntakeError:
                continue
            if isinstance(value, dict):
                yield value
