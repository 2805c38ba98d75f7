"""A hook or a policy, bound: asking it safely, merging the answers, writing down who was asked.

Whatever a gate does, there is an answer: an exception, a late answer, or anything but a decision that it may give denies.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import attrs

from . import canonical
from .contracts import Call, Decision, Object

Clock: TypeAlias = Callable[[], float]

RANK: Final = {"allow": 0, "transform": 0, "ask": 1, "deny": 2}
"""The conservative answer wins: the highest rank."""

_MAX_REASON: Final = 500
_REMEMBERED: Final = 256


@attrs.frozen(eq=False, kw_only=True)
class BoundGate:
    """One hook or policy, ready to be asked.

    *may* holds the outcomes it is allowed to give, *limit* the seconds it may take, *holds* the part of its match that
    depends on the call (``None``: always), *rules* the places of its rules, if it names one by ``signals["rule"]``.
    """

    id: str
    kind: str
    digest: str
    ask: Callable[..., Any]
    may: frozenset[str]
    limit: float
    pure: bool = False
    rewrites: bool = False
    reads: frozenset[str] = frozenset()
    holds: Callable[[Call], bool] | None = None
    rules: tuple[str, ...] = ()
    place: str = ""


Asked: TypeAlias = list[tuple[BoundGate, Decision]]


def answer(gate: BoundGate, clock: Clock, *subject: Any) -> Decision:
    """Ask *gate* about *subject*; never raises (but for the interrupt of a person), always decides."""
    begun = clock()
    try:
        decision = gate.ask(*subject)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - a gate that exits, or is cancelled, has not allowed anything
        return refusal(f"{type(problem).__name__}: {problem}")
    late = clock() - begun > gate.limit
    if type(decision) is not Decision or decision.outcome not in gate.may:
        return refusal(f"answered {decision!r}; it may answer {', '.join(sorted(gate.may))}")
    if late:
        return refusal(f"answered after its limit of {gate.limit * 1000:g} ms")
    return decision


def refusal(reason: str) -> Decision:
    """Return a denial with a reason of bounded length."""
    return Decision("deny", reason[:_MAX_REASON])


def merge(asked: Iterable[tuple[BoundGate, Decision]]) -> tuple[BoundGate, Decision] | None:
    """Return the most conservative answer (``deny`` over ``ask``), the first among equals; ``None`` if all allow."""
    worst = None
    rank = 0
    for pair in asked:
        found = RANK[pair[1].outcome]
        if found > rank:
            worst, rank = pair, found
    return worst


def by(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return who decided, as a denial records it: the gate, and its rule and place where there is one."""
    who: dict[str, Any] = {gate.kind: gate.id}
    rule = rule_place(gate, decision)
    if rule:
        who["rule"] = rule
    if gate.place:
        who["place"] = gate.place
    return who


def rule_place(gate: BoundGate, decision: Decision) -> str | None:
    """Return the place of the rule that a policy named in its signals."""
    rule = decision.signals.get("rule")
    if type(rule) is int and 0 <= rule < len(gate.rules):
        return gate.rules[rule]
    return None


def entry(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return the line of one gate in ``hook.fired`` or ``policy.check``."""
    line: dict[str, Any] = {gate.kind: gate.id, "digest": gate.digest, "decision": decision.outcome}
    if decision.reason:
        line["reason"] = decision.reason[:_MAX_REASON]
    rule = rule_place(gate, decision)
    if rule:
        line["rule"] = rule
    elif decision.signals:
        line["signals"] = dict(decision.signals)
    return line


class Minutes:
    """Writes down who was asked and what they said; a round of answers seen before costs one look-up.

    Gates that answer with shared decisions (the constant ``ALLOW``, the rules of a policy) are what makes it pay.
    """

    def __init__(self, **fixed: Any) -> None:
        self._fixed = fixed
        self._seen: dict[tuple[int, ...], tuple[Asked, bytes, str]] = {}

    def usual(self, asked: Asked, outcome: str) -> tuple[bytes, str]:
        """Return payload and payload hash of a round without facts or changes."""
        key = tuple([id(item) for pair in asked for item in pair])
        seen = self._seen.get(key)
        if seen is None:
            raw = self.full(asked, outcome)
            seen = (list(asked), raw, sha256(raw).hexdigest())
            if len(self._seen) < _REMEMBERED:
                self._seen[key] = seen
        return seen[1], seen[2]

    def full(self, asked: Asked, outcome: str, **more: Any) -> bytes:
        """Return the payload of a round, with facts, input and output where there are any.

        What a gate said may not be JSON at all; then its signals are left out, never the entry.
        """
        lines = [entry(gate, decision) for gate, decision in asked]
        try:
            return canonical.encode({"asked": lines, "decision": outcome, **self._fixed, **more})
        except canonical.IntakeError:
            return canonical.encode({"asked": [_printable(line) for line in lines], "decision": outcome, **self._fixed})


def _printable(line: Object) -> dict[str, Any]:
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else repr(value)
        for key, value in line.items()
        if key != "signals"
    }


def in_order(gates: Iterable[tuple[int, BoundGate]]) -> Sequence[BoundGate]:
    """Return gates by priority, higher first, then by id."""
    return [gate for _, gate in sorted(gates, key=lambda pair: (-pair[0], pair[1].id))]
