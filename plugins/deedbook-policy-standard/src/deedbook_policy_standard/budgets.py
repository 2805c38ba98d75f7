"""The policy kind ``budget``: limits of calls, tokens, cost, time and depth, of one session or over sessions.

Within one session a call is allowed as long as the use is below the limit, so that a limit of N calls is N calls. The
kernel keeps facts unchanged between the judgement and the intent, so no two calls both take the last one. The cost of a
model call is known when it has answered; calls that are under way may together use more than is left.

Over sessions (``per``) a call is allowed only if what is used and reserved, and the most that the call may use, is
within the limit. This class only judges. The feature `reservations` reserves in the workspace ledger, after the
judgement.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar, Final, TypeAlias

from deedbook.contract import Call, Decision, GateSpec, Host, Object, PolicyProblem, PolicyTarget, allow, ask, deny
from deedbook.contract.pointers import join_pointer

from .accounts import PERIODS, SESSION, SPANS, Terms, compile_glob

Spent: TypeAlias = Callable[[Call], str | None]
"""Says why a call may not go on, or nothing."""

USED: Final = "budgets.used"
"""The fact that the feature `reservations` reads: the depth of the call, and what its accounts have used."""

_NEEDED: Final = (("cost_usd", "prices", ""), ("seconds", "assume", "seconds"))
_COUNT: Final[Object] = {"type": "integer", "minimum": 0}
_GLOB: Final = r"^([^*]*\*{1,2}){0,4}[^*]*$"  # few stars, so that no name is tried in many ways

_DOLLARS: Final[Object] = {"type": ["number", "null"], "minimum": 0}
PRICE: Final[Object] = {
    "description": "US dollars for a million tokens; null for a price that is not known",
    "type": "object",
    "required": ["input_per_million", "output_per_million"],
    "properties": {
        "input_per_million": _DOLLARS,
        "cached_input_per_million": {**_DOLLARS, "description": "Not used: how much is cached is known afterwards"},
        "output_per_million": _DOLLARS,
        "date": {
            "description": "When the prices were read",
            "type": "string",
            "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
        },
        "source": {"description": "Where the prices were read, such as an address", "type": "string", "minLength": 1},
    },
    "additionalProperties": False,
}
"""The prices of one model, in the form that they have in a profile (``prices:``) and in a file of `prices_v2`."""

SETTINGS: Final[Object] = {
    "description": "What may be used; a call for which too little is left is denied, or asked about",
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
                "seconds": {
                    "description": "Seconds since the session began; over sessions, seconds that calls took",
                    "type": "number",
                    "minimum": 0,
                },
                "depth": {"description": "How deep calls may be nested; 0: only calls of the session itself", **_COUNT},
            },
            "additionalProperties": False,
        },
        "then": {"description": "What happens at a limit; deny if left out", "enum": ["ask", "deny"]},
        "per": {
            "description": "What has an account of its own; session if left out. principal: the person or client who "
            "is accountable, actor: who acts, such as agent:worker, workspace: all principals together",
            "enum": list(SPANS),
        },
        "account": {
            "description": "The name of the account over sessions; policies that name the same one share it",
            "type": "string",
            "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$",
        },
        "every": {"description": "The period in UTC after which an account begins anew", "enum": list(PERIODS)},
        "prices": {
            "description": "Prices by globs over model abilities, as in prices: of a model; the first that fits counts",
            "type": "object",
            "propertyNames": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": _GLOB},
            "additionalProperties": PRICE,
        },
        "assume": {
            "description": "What a call counts for until it is over, where it does not say so itself",
            "type": "object",
            "minProperties": 1,
            "properties": {
                "output_tokens": {"description": "Tokens of an answer to a request without max_tokens", **_COUNT},
                "seconds": {"description": "Seconds that a call takes", "type": "number", "minimum": 0},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
    "if": {"properties": {"per": {"enum": list(SPANS[1:])}}, "required": ["per"]},
    "then": {"required": ["account"]},
    "else": {"properties": dict.fromkeys(("account", "every", "prices", "assume"), False)},
}
"""The JSON Schema of the policy's body, draft 2020-12."""


class Budget:
    """Denies a call, or asks about it, if a limit leaves too little for it."""

    spec: ClassVar[GateSpec] = GateSpec(
        settings=SETTINGS,
        reads=frozenset({"session.calls", "session.usage", "session.started"}),
        pure=True,
        limits=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._terms = Terms.of(settings)
        self._asks = settings.get("then") == "ask"
        self._depth = settings["limits"].get("depth")
        self._limits = () if self._terms else tuple(_limits(settings["limits"]))

    def __call__(self, call: Call) -> Decision:
        """Allow if every limit leaves enough for the call; otherwise name the limit, and what is used."""
        if self._depth is not None and (depth := call.facts[USED].get("depth", 0)) > self._depth:
            return self._refuse(f"depth: {depth} is deeper than {self._depth}")
        for spent in self._limits:
            why = spent(call)
            if why:
                return self._refuse(why)
        return self._judge_account(self._terms, call) if self._terms else allow()

    def _judge_account(self, terms: Terms, call: Call) -> Decision:
        used = call.facts[USED].get("accounts", {}).get(terms.key, {})
        excess = terms.find_excess(used, terms.estimate(call))
        if excess is None:
            return allow()
        name, numbers = excess
        of = f"{name} of the account {terms.key}"
        # a person approves the reason as it stands, and the numbers change with each call of other sessions
        return ask(f"{of}: the limit leaves too little for this call") if self._asks else deny(f"{of}: {numbers}")

    def _refuse(self, why: str) -> Decision:
        return ask(why) if self._asks else deny(why)

    @staticmethod
    def reads(body: Object) -> frozenset[str]:
        """Return the fact of the feature `reservations`, if the policy needs it."""
        limits = body.get("limits")
        needed = body.get("per", SESSION) != SESSION or (isinstance(limits, dict) and "depth" in limits)
        return frozenset({USED} if needed else ())

    @staticmethod
    def check(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:  # noqa: ARG004 - the contract
        """Yield settings that contradict each other."""
        over = body.get("per", SESSION) != SESSION
        if over and "account" not in body:
            why = f"per: {body['per']} needs a name for the account, such as account: monthly"
            yield PolicyProblem(pointer="/per", message=why)
        for name in ("account", "every", "prices", "assume") if not over else ():
            if name in body:
                why = f"{name} is for budgets over sessions; add per: principal, actor or workspace"
                yield PolicyProblem(pointer=f"/{name}", message=why)
        limits = body.get("limits")
        named = limits if over and isinstance(limits, dict) else {}
        for limit, part, missing in _NEEDED:
            given = body.get(part)
            if limit in named and not (isinstance(given, dict) and (not missing or missing in given)):
                wanted = f"{part}.{missing}" if missing else part
                why = f"a limit of {limit} over sessions needs {wanted}; without it every call is denied"
                yield PolicyProblem(pointer=f"/limits/{limit}", message=why)

    @staticmethod
    def lint(body: Object, abilities: Sequence[PolicyTarget]) -> Iterator[PolicyProblem]:
        """Yield the limits of calls that limit nothing, since their glob fits no ability."""
        calls = body["limits"].get("calls")
        for glob in calls if isinstance(calls, dict) else ():
            if not any(compile_glob(glob)(each.id) for each in abilities):
                why = f"limits the calls of {glob!r}, which fits no ability that this policy is asked about"
                yield PolicyProblem(pointer=join_pointer("limits", "calls", glob), message=why)


def _limits(limits: Object) -> Iterator[Spent]:
    calls = limits.get("calls", {})
    for glob, most in (calls if isinstance(calls, dict) else {"**": calls}).items():
        yield partial(_calls, glob, compile_glob(glob), most)
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
