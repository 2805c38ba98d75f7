"""The provider ``fallback``: asks the models of other tiers, one after the other, until one answers."""

import asyncio
from random import random
from typing import Any, ClassVar, Final

import attrs

from deedbook import Ctx, Failed, HandlerSpec, Host, Object

from . import escalation
from .breakers import Breakers
from .escalation import Escalation
from .skips import RECORDS, SKIPPED

MOST_ATTEMPTS: Final = 10
_LATE: Final = "TOOL_TIMEOUT"
"""The code of a call that the kernel ended at its limit."""
_MALFORMED: Final = "MALFORMED_AGENT_MESSAGE"
_OF_MODELS: Final = frozenset({"PROVIDER_ERROR", "INTAKE_REFUSED", _MALFORMED})
"""The codes of failures that a provider reports."""
_LONGEST: Final = 300
_NO_USAGE: Final[Object] = {"input_tokens": 0, "output_tokens": 0}
_SECONDS: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}

SETTINGS: Final[Object] = {
    "type": "object",
    "required": ["models"],
    "properties": {
        "models": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": 20,
            "uniqueItems": True,
            "description": "Tiers of this profile, in the order in which they are asked.",
        },
        "attempts": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_ATTEMPTS,
            "default": 3,
            "description": "How often each of them is asked, at most.",
        },
        "first_wait": {**_SECONDS, "default": 0.5, "description": "Seconds before the second attempt; then doubled."},
        "longest_wait": {**_SECONDS, "default": 30, "description": "The most seconds that one wait may take."},
        "breaker": {
            "type": "object",
            "properties": {
                "failures": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 5},
                "seconds": {**_SECONDS, "default": 60},
            },
            "additionalProperties": False,
            "description": "After so many failures in a row, a model is not asked for so many seconds.",
        },
        "escalate": escalation.SETTINGS,
    },
    "additionalProperties": False,
}


@attrs.frozen(kw_only=True)
class Plan:
    """The settings, complete; times in seconds."""

    models: tuple[str, ...]
    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 30.0
    failures: int = 5
    seconds: float = 60.0
    escalate: Escalation = attrs.field(factory=Escalation)

    @classmethod
    def read(cls, given: Object) -> "Plan":
        """Return the settings of YAML, which fit `SETTINGS`."""
        own = {name: value for name, value in given.items() if name != "breaker"}
        rules = Escalation.read(given.get("escalate", ()), given["models"])
        return cls(**{**own, "models": tuple(given["models"]), "escalate": rules, **given.get("breaker", {})})

    def wait(self, attempt: int, problem: Failed) -> float:
        """Return how long to wait after the failure of an attempt, counted from 0."""
        if problem.retry_after is not None:
            return problem.retry_after
        spread = 1 - random() / 4  # noqa: S311 - only to spread load
        return float(min(self.first_wait * 2**attempt, self.longest_wait) * spread)


class Fallback:
    """Asks each model through the door; every attempt has its own request and outcome in the ledger.

    An error that asking again can mend (`Failed.retryable`, or a call that was ended at its limit) is followed by
    another attempt, and then by the next model. Every other error ends the call, unless a rule of `escalate` names its
    code: a refused key, a refused request or a denial must not be hidden by another model's answer. Rules of `escalate`
    also choose a later model to begin with, or after an answer. The response counts no tokens; those of the attempts
    count. A model that a breaker leaves out is recorded as `SKIPPED`.
    """

    spec: ClassVar[HandlerSpec] = HandlerSpec(
        settings=SETTINGS,
        effects="read",
        interruptible=True,
        files="none",
        tiers="/models",
        images=True,
        records=RECORDS,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        self._plan = Plan.read(settings)
        self._breakers = host.share("deedbook-provider-fallback", Breakers)

    async def __call__(self, request: Object, ctx: Ctx) -> dict[str, Any]:
        """Return the first answer that stands, or the last one; raises `Failed` if no model gives one."""
        asked = {name: value for name, value in request.items() if name != "model"}
        course, models = Course(), self._plan.models
        at, response = self._plan.escalate.first(request), None
        while at < len(models):
            try:
                answer = await self._ask(models[at], asked, ctx, course)
            except Failed as problem:
                to = self._plan.escalate.next_after(problem)
                if to is None or to <= at:
                    raise
                course.fail(models[at], problem)
                at = to
                continue
            at += 1
            if answer is not None:
                response = answer
                to = self._plan.escalate.next(answer)
                if to is None or to < at:
                    break
                at = to
        if response is None:
            raise course.failure()
        return {**response, "usage": dict(_NO_USAGE)}

    async def _ask(self, tier: str, request: Object, ctx: Ctx, course: "Course") -> dict[str, Any] | None:
        """Ask one model, again where that can help; ``None`` if the next one is due. Raises `Failed`."""
        breaker = self._breakers.get(tier, self._plan.failures, self._plan.seconds)
        for attempt in range(self._plan.attempts):
            if breaker.opened:
                ctx.record(SKIPPED, {"model": f"model/{tier}", **breaker.describe()})
                course.skip(tier, breaker.remaining)
                break
            ctx.load(f"model/{tier}")
            try:
                response: Any = await ctx.acall(f"model/{tier}", request)
            except Failed as problem:
                if not _can_mend(problem):
                    raise
                breaker.count(problem)
                course.fail(tier, problem)
                wait = self._plan.wait(attempt, problem)
                if attempt + 1 == self._plan.attempts or wait > self._plan.longest_wait or wait >= ctx.remaining():
                    break
                await asyncio.sleep(wait)
            else:
                breaker.reset()
                return dict(response)
        return None


@attrs.define
class Course:
    """What became of the attempts so far: a line for each, the last failure, and when asking may help again."""

    lines: list[str] = attrs.field(factory=list)
    malformed: bool = False
    retryable: bool = False
    waits: list[float | None] = attrs.field(factory=list)

    def skip(self, tier: str, seconds: float) -> None:
        """Note that *tier* is not asked for so many *seconds*."""
        self.lines.append(f"{tier} failed too often and is not asked for {seconds:.0f} s")
        self.waits.append(seconds)
        self.retryable = True

    def fail(self, tier: str, problem: Failed) -> None:
        """Note a failed attempt."""
        self.lines.append(f"{tier}: {str(problem)[:_LONGEST]}")
        self.malformed = problem.code == _MALFORMED
        self.waits.append(problem.retry_after)
        self.retryable = self.retryable or _can_mend(problem)

    def failure(self) -> Failed:
        """Return the failure of the whole call; the flow tells it to the role if the last answer was malformed."""
        why = f"no model answered; {'; '.join(self.lines)}"
        known = [wait for wait in self.waits if wait is not None]
        return Failed(
            _MALFORMED if self.malformed else "PROVIDER_ERROR",
            why,
            retryable=self.retryable,
            retry_after=min(known, default=None),
        )


def _can_mend(problem: Failed) -> bool:
    """Return whether asking again, or another model, can help."""
    return problem.code == _LATE or (problem.retryable and problem.code in _OF_MODELS)
