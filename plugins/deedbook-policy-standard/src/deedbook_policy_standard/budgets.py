"""What a session may spend: calls, tokens, money, time.

A call goes on while what is used is below the limit, so that a limit of N calls is N calls. The kernel holds facts
still between judging and the record of the intent: no two calls both take the last one. What a model call costs is
known when it has answered, so that of tokens and money the calls that are under way may spend more than is left.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar, Final, TypeAlias

from deedbook.contract import Call, Decision, GateSpec, Host, Object, PolicyProblem, PolicyTarget, allow, ask, deny
from deedbook.format.pointers import join_pointer

Spent: TypeAlias = Callable[[Call], str | None]
"""Says why a call may not go on, or nothing."""

_COUNT: Final[Object] = {"type": "integer", "minimum": 0}
_GLOB: Final = r"^([^*]*\*{1,2}){0,4}[^*]*$"  # few stars, so that no name is tried in many ways

SETTINGS: Final[Object] = {
    "description": "What a session may spend; a call that finds a limit reached is denied, or asked about",
    "type": "object",
    "required": ["limits"],
    "properties": {
        "limits": {
            "description": "The limits; each is asked about every call that the policy is asked about",
            "type": "object",
            "minProperties": 1,
            "properties": {
                "calls": {
                    "description": "How many calls the session may begin, of all kinds; or by globs over ability ids",
                    "type": ["integer", "object"],
                    "minimum": 0,
                    "minProperties": 1,
                    "propertyNames": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": _GLOB},
                    "additionalProperties": _COUNT,
                },
                "input_tokens": {"description": "Tokens that models may have read", **_COUNT},
                "output_tokens": {"description": "Tokens that models may have written", **_COUNT},
                "tokens": {"description": "Tokens of both kinds", **_COUNT},
                "cost_usd": {"description": "US dollars that providers said", "type": "number", "minimum": 0},
                "seconds": {"description": "Seconds since the session began", "type": "number", "minimum": 0},
            },
            "additionalProperties": False,
        },
        "then": {"description": "What happens at a limit; deny if left out", "enum": ["ask", "deny"]},
    },
    "additionalProperties": False,
}
"""The JSON Schema of the policy's body, draft 2020-12."""


class Budget:
    """Denies a call, or asks about it, once a limit of the session is reached."""

    spec: ClassVar[GateSpec] = GateSpec(
        settings=SETTINGS, reads=frozenset({"session.calls", "session.usage", "session.started"}), pure=True
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._limits = tuple(_limits(settings["limits"]))
        self._answer = ask if settings.get("then") == "ask" else deny

    def __call__(self, call: Call) -> Decision:
        """Allow while every limit has something left; otherwise say which is spent, what is used, and the limit."""
        for spent in self._limits:
            why = spent(call)
            if why:
                return self._answer(why)
        return allow()

    @staticmethod
    def lint(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
        """Yield the limits of calls that limit nothing, since their glob fits no ability."""
        calls = body["limits"].get("calls")
        for glob in calls if isinstance(calls, dict) else ():
            if not any(re.fullmatch(_pattern(glob), each.id, re.DOTALL) for each in abilities):
                why = f"limits the calls of {glob!r}, which fits no ability that this policy is asked about"
                yield PolicyProblem(pointer=join_pointer("limits", "calls", glob), message=why)


def _limits(limits: Object) -> Iterator[Spent]:
    calls = limits.get("calls", {})
    for glob, most in (calls if isinstance(calls, dict) else {"**": calls}).items():
        yield partial(_calls, glob, re.compile(_pattern(glob), re.DOTALL).fullmatch, most)
    for name, members in _TOKENS.items():
        if name in limits:
            yield partial(_tokens, name, members, limits[name])
    if "cost_usd" in limits:
        yield partial(_cost, limits["cost_usd"])
    if "seconds" in limits:
        yield partial(_seconds, limits["seconds"])


_TOKENS: Final = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "tokens": ("input_tokens", "output_tokens"),
}


def _calls(glob: str, fits: Callable[[str], object], most: int, call: Call) -> str | None:
    if not fits(call.ability):
        return None
    used = sum(count for name, count in call.facts["session.calls"].items() if fits(name))
    of = "" if glob == "**" else f" of {glob}"
    return f"calls{of}: {used} of {most} are used" if used >= most else None


def _tokens(name: str, members: tuple[str, ...], most: int, call: Call) -> str | None:
    used = sum(call.facts["session.usage"].get(member, 0) for member in members)
    return f"{name}: {used:g} of {most} are used" if used >= most else None


def _cost(most: float, call: Call) -> str | None:
    usage = call.facts["session.usage"]
    if usage and "cost_usd" not in usage:
        return "cost_usd: the provider does not say what its calls cost, so that this limit cannot be kept"
    used = usage.get("cost_usd", 0)
    return f"cost_usd: {used:g} of {most:g} are used" if used >= most else None


def _seconds(most: float, call: Call) -> str | None:
    begun, now = (datetime.fromisoformat(moment) for moment in (call.facts["session.started"], call.now))
    used = (now - begun).total_seconds()
    return f"seconds: {used:g} of {most:g} are used" if used >= most else None


def _pattern(glob: str) -> str:
    """Return a glob over ability ids as a regular expression: ``*`` within a segment, ``**`` across."""
    parts = re.split(r"(\*+)", glob)
    return "".join({"*": "[^/]*", "**": ".*"}.get(part, re.escape(part)) for part in parts)
