"""The arithmetic of budgets over sessions: who pays, what a call may use at most, what it used, what is left. Pure.

Amounts are whole numbers: calls, tokens, nano-dollars (``nano_usd``) and milliseconds (``ms``). The gate judges and the
feature `reservations` reserves with the same functions, so that both come to the same answer about the same balance.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Call, Object, Principal

SESSION: Final = "session"
PRINCIPAL: Final = "principal"
ACTOR: Final = "actor"
WORKSPACE: Final = "workspace"
SPANS: Final = (SESSION, PRINCIPAL, ACTOR, WORKSPACE)
"""What one account is kept for: a session, the person or client who is accountable, who acts, or all together."""
PERIODS: Final[Mapping[str, int]] = {"hour": 13, "day": 10, "month": 7}
"""The periods in UTC, and how many characters of a time they have in common."""
ALL: Final = "**"
"""The glob that every ability fits; calls are always counted under it."""
NUMBERS: Final = ("input_tokens", "output_tokens", "nano_usd", "ms")

Amounts: TypeAlias = Mapping[str, Any]
"""``calls`` by glob, and the `NUMBERS`; a missing member is zero."""

_NANO: Final = 1_000_000_000


@attrs.frozen
class AccountId:
    """One account: its *name*, what it is kept *per*, *who* that is, and since when it counts (empty: ever)."""

    name: str
    per: str
    who: str
    since: str

    @classmethod
    def parse(cls, row: Object) -> "AccountId":
        """Return the account of a row of an event; the row may have more members."""
        return cls(row["name"], row["per"], row["who"], row["since"])

    def as_json(self) -> dict[str, str]:
        """Return its members as an event records them."""
        return attrs.asdict(self)


@attrs.frozen
class Estimate:
    """The most that a call may use: the globs that it counts for, and the `NUMBERS`; ``None`` is not known."""

    globs: tuple[str, ...]
    numbers: Mapping[str, int | None]

    @property
    def reserved(self) -> dict[str, Any]:
        """The amounts to reserve; what is not known is reserved by no policy that limits it."""
        return {"calls": dict.fromkeys(self.globs, 1), **{name: each or 0 for name, each in self.numbers.items()}}

    def merge(self, other: "Estimate") -> "Estimate":
        """Return the most of both, for an account that two policies share."""
        numbers = {name: max(self.numbers[name] or 0, other.numbers[name] or 0) for name in NUMBERS}
        return Estimate(tuple(dict.fromkeys((*self.globs, *other.globs))), numbers)


@attrs.frozen(eq=False)
class Terms:
    """The terms of one policy over sessions, from its settings."""

    account: str
    per: str
    every: str
    limits: Object
    prices: Object
    assume: Object
    _globs: Mapping[str, Callable[[str], object]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, settings: Object) -> "Terms | None":
        """Return the terms of a policy; ``None`` if it counts within one session only."""
        per = settings.get("per", SESSION)
        if per == SESSION:
            return None
        limits = settings["limits"]
        calls = limits.get("calls", {})
        globs = {glob: compile_glob(glob) for glob in (ALL, *(calls if isinstance(calls, dict) else ()))}
        every = settings.get("every", "")
        assume, prices = settings.get("assume", {}), settings.get("prices", {})
        return cls(settings["account"], per, every, limits, prices, assume, globs)

    @property
    def key(self) -> str:
        """The name of its accounts in facts: policies with the same account, span and period share them."""
        return "/".join(filter(None, (self.account, self.per, self.every)))

    def find_account(self, principal: Principal, now: str) -> AccountId:
        """Return the account that a call of *principal* at *now* counts for."""
        return AccountId(self.account, self.per, _payer(self.per, principal), self.since(now))

    def since(self, now: str) -> str:
        """Return the beginning of the period of *now*, such as ``2026-01``; empty without a period."""
        return now[: PERIODS[self.every]] if self.every else ""

    def estimate(self, call: Call) -> Estimate:
        """Return the most that *call* may use.

        A token has at least one byte, so the request has at most as many tokens as bytes.
        """
        globs = tuple(glob for glob, fits in self._globs.items() if fits(call.ability))
        seconds = self.assume.get("seconds") if self._is_timed(call) else 0
        numbers: dict[str, int | None] = dict.fromkeys(NUMBERS, 0)
        numbers["ms"] = None if seconds is None else ceil(seconds * 1000)
        if call.kind == "model":
            output = call.args.get("max_tokens", self.assume.get("output_tokens"))
            numbers |= {"input_tokens": len(call.raw), "output_tokens": output}
            numbers["nano_usd"] = self._price(call.ability, len(call.raw), output)
        return Estimate(globs, numbers)

    def find_excess(self, used: Amounts, estimate: Estimate) -> tuple[str, str] | None:
        """Return the first limit that *used* and the call would exceed, and the numbers; ``None`` if none."""
        for name, limit, members, unit in self._limits(estimate.globs):
            if name.startswith("calls"):
                taken, wanted = used.get("calls", {}).get(members[0], 0), 1
            else:
                parts = [estimate.numbers[member] for member in members]
                if None in parts:
                    return name, _UNKNOWN[name]
                taken = sum(used.get(member, 0) for member in members)
                wanted = sum(part for part in parts if part)
            if taken + wanted > limit * unit:
                said = f"{taken / unit:g} of {limit:g} are used or reserved, and this call may use {wanted / unit:g}"
                return name, said
        return None

    def settle(self, call: Call, estimate: Estimate, value: Any, ms: int) -> dict[str, Any]:
        """Return what a call used that took *ms*; a model that does not report it has used what was reserved."""
        final = {**estimate.reserved, "ms": ms if self._is_timed(call) else 0}
        return self.settle_answer(call.ability, final, value) if call.kind == "model" else final

    def settle_answer(self, ability: str, reserved: Amounts, value: Any) -> dict[str, Any]:
        """Return what a model call used, by its answer; what that does not report is used as *reserved*."""
        final = dict(reserved)
        usage = value.get("usage") if isinstance(value, dict) else None
        if not isinstance(usage, dict):
            return final
        told = {name: usage[name] for name in ("input_tokens", "output_tokens") if _is_amount(usage.get(name))}
        final |= {name: ceil(each) for name, each in told.items()}
        if _is_amount(usage.get("cost_usd")):
            final["nano_usd"] = ceil(usage["cost_usd"] * _NANO)
        else:
            price = self._price(ability, final["input_tokens"], final["output_tokens"])
            final["nano_usd"] = final["nano_usd"] if price is None else price
        return final

    def _is_timed(self, call: Call) -> bool:
        """Return whether the time of *call* counts; that of a flow is the time of the calls in it."""
        return "seconds" in self.limits and call.kind != "flow"

    def _price(self, ability: str, read: int, written: int | None) -> int | None:
        fitting = (each for glob, each in self.prices.items() if compile_glob(glob)(ability))
        price: Mapping[str, float | None] | None = next(fitting, None)
        if price is None or written is None:
            return None
        cost = 0.0
        for tokens, each in ((read, price["input_per_million"]), (written, price["output_per_million"])):
            if tokens and each is None:
                return None
            cost += tokens * (each or 0)
        return ceil(cost * 1000)

    def _limits(self, globs: Iterable[str]) -> Iterable[tuple[str, float, tuple[str, ...], int]]:
        """Yield each limit that concerns a call of *globs*: its name, the limit, its members, and their unit."""
        calls = self.limits.get("calls", {})
        for glob, limit in (calls if isinstance(calls, dict) else {ALL: calls}).items():
            if glob in globs:
                yield ("calls" if glob == ALL else f"calls of {glob}"), limit, (glob,), 1
        for name, (members, unit) in _MEMBERS.items():
            if name in self.limits:
                yield name, self.limits[name], members, unit


_MEMBERS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "input_tokens": (("input_tokens",), 1),
    "output_tokens": (("output_tokens",), 1),
    "tokens": (("input_tokens", "output_tokens"), 1),
    "cost_usd": (("nano_usd",), _NANO),
    "seconds": (("ms",), 1000),
}
_NO_OUTPUT: Final = "the request has no max_tokens, and the policy no assume.output_tokens, so nothing can be reserved"
_UNKNOWN: Final[Mapping[str, str]] = {
    "output_tokens": _NO_OUTPUT,
    "tokens": _NO_OUTPUT,
    "cost_usd": "the price of this call is not known: prices names no price of its model, or null, or the request no "
    "max_tokens",
    "seconds": "the policy has no assume.seconds, so that nothing can be reserved",
}


def add(one: Amounts, other: Amounts, sign: int = 1) -> dict[str, Any]:
    """Return the sum of two amounts; with *sign* -1, their difference. Nothing becomes less than zero."""
    calls = {**one.get("calls", {})}
    for glob, count in other.get("calls", {}).items():
        calls[glob] = max(calls.get(glob, 0) + sign * count, 0)
    return {"calls": calls, **{name: max(one.get(name, 0) + sign * other.get(name, 0), 0) for name in NUMBERS}}


def compile_glob(glob: str) -> Callable[[str], object]:
    """Return the test of a glob over ability ids: ``*`` within a segment, ``**`` across."""
    parts = re.split(r"(\*+)", glob)
    pattern = "".join({"*": "[^/]*", "**": ".*"}.get(part, re.escape(part)) for part in parts)
    return re.compile(pattern, re.DOTALL).fullmatch


def _payer(per: str, principal: Principal) -> str:
    if per == WORKSPACE:
        return ""
    return principal.id if per == ACTOR else principal.on_behalf_of or principal.id


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
