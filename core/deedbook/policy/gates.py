"""A hook or a policy, bound: asking it safely, merging the answers, writing down who was asked.

Whatever a gate does, there is an answer: an exception, a late answer, or anything but a decision that it may give is a
denial.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import iscoroutine
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import ALLOW, Call, Decision
from deedbook.contract.lifecycle import TEXTS, Unanswered
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, describe, recordable

Clock: TypeAlias = Callable[[], float]

RANK: Final = {"allow": 0, "transform": 1, "ask": 2, "deny": 3}
"""The conservative answer wins: the highest rank; from ``ask`` on, a call does not go on by itself."""

APPROVAL_GATE: Final = "approval-gate"
"""The tag of an ability whose every call waits for a person."""
ASK_BY_DEFAULT: Final = "ask-by-default"
"""The tag of an ability about whose calls a person is asked where a policy has no rule and its default is to deny."""
ASKING: Final = ("destructive", "irreversible")
"""The tags of an ability whose calls wait for a person, unless a policy that names the tag allows the call."""


@attrs.frozen(eq=False, kw_only=True)
class BoundGate:
    """One hook or policy, ready to be asked.

    *may* holds the outcomes it is allowed to give (``allow`` always among them), *limit* the seconds it may take,
    *holds* the part of its match that depends on the call (``None``: always), *rules* the places of its rules, if it
    names one by ``signals["rule"]``, *signals* the names of those that it may carry (``None``: any). One that
    *waits* is asked somewhere else than on the calling thread. *mask* takes secrets out of what is told. *tags* are
    those that a policy's match names, *rule_tags* those that each of its rules names in its own.
    """

    id: str
    kind: str
    digest: str
    ask: Callable[..., Any]
    may: frozenset[str]
    limit: float
    pure: bool = False
    waits: bool = False
    rewrites: bool = False
    reads: frozenset[str] = frozenset()
    holds: Callable[[Call], bool] | None = None
    rules: tuple[str, ...] = ()
    place: str = ""
    signals: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    rule_tags: tuple[frozenset[str], ...] = ()
    mask: Callable[[str], str] = str


Asked: TypeAlias = list[tuple[BoundGate, Decision]]


def answer(gate: BoundGate, clock: Clock, *subject: Any) -> Decision:
    """Ask *gate* about *subject*; never raises (but for the interrupt of a person), always decides."""
    begun = clock()
    try:
        decision = gate.ask(*subject)
        if clock() - begun <= gate.limit and (decision is ALLOW or _speaks_for(gate, decision)):
            return _masked(gate, decision)
    except KeyboardInterrupt:
        raise
    except Unanswered as problem:
        return refusal(str(problem))
    except BaseException as problem:  # noqa: BLE001 - a gate that exits, or is cancelled, has not allowed anything
        return refusal(describe(problem, gate.mask))
    return _refused(gate, decision)


def heard(gate: BoundGate, decision: Any) -> Decision:
    """Return an answer that came from elsewhere (a record, another process), or a refusal if *gate* may not give it."""
    try:
        return decision if _speaks_for(gate, decision) else _refused(gate, decision)
    except Exception as problem:  # noqa: BLE001 - as in `answer`
        return refusal(describe(problem))


def _masked(gate: BoundGate, decision: Decision) -> Decision:
    """Return *decision* with a reason without secrets: it is told to models and printed, and cut where it is long."""
    told = gate.mask(decision.reason) if decision.reason else decision.reason
    return decision if told == decision.reason else attrs.evolve(decision, reason=told)


def refusal(reason: str) -> Decision:
    """Return a denial with a reason that can be recorded, of bounded length."""
    return Decision("deny", recordable(reason))


def _speaks_for(gate: BoundGate, decision: Any) -> bool:
    """Say whether *decision* is one, complete, that *gate* may give; plugins are not checked by types alone."""
    return (
        type(decision) is Decision
        and type(decision.outcome) is str
        and decision.outcome in gate.may
        and type(decision.reason) is str
        and (type(decision.signals) is dict or isinstance(decision.signals, Mapping))
        and (decision.outcome != "transform" or isinstance(decision.args, Mapping))
        and (not decision.signals or gate.signals is None or _ill_signal(gate, decision) is None)
    )


def _ill_signal(gate: BoundGate, decision: Decision) -> str | None:
    """Say what is wrong with the signals of a hook; ``None`` if nothing is."""
    for name, value in dict(decision.signals).items():
        if gate.signals is not None and name not in gate.signals:
            shown = name[:40] if type(name) is str else type(name).__name__
            may = ", ".join(sorted(gate.signals))
            return f"carried the signal {shown!r}; it may carry {may or 'none, which is a configuration error'}"
        try:
            canonical.admit(value)
        except IntakeError as problem:
            return f"carried the signal {name}, which cannot be recorded: {problem}"
        if name in TEXTS and type(value) is not str:
            return f"carried the signal {name} as {type(value).__name__}; it is text"
    return None


def _refused(gate: BoundGate, decision: Any) -> Decision:
    """Say why an answer does not count, without quoting what it held."""
    if iscoroutine(decision):
        decision.close()  # else Python warns that nobody awaited it
    may = ", ".join(sorted(gate.may))
    if type(decision) is not Decision:
        return refusal(f"answered {type(decision).__name__}, not a Decision; it may answer {may}")
    if type(decision.outcome) is not str or decision.outcome not in gate.may:
        given = decision.outcome if type(decision.outcome) is str else type(decision.outcome).__name__
        return refusal(f"answered {given[:40]}; it may answer {may}")
    if not _speaks_for(gate, decision):
        ill = _ill_signal(gate, decision) if isinstance(decision.signals, Mapping) else None
        return refusal(
            ill or "answered with a reason that is no text, signals that are no mapping, or transform without args"
        )
    return refusal(f"answered after its limit of {gate.limit * 1000:g} ms")


def merge(*rounds: Iterable[tuple[BoundGate, Decision]]) -> tuple[BoundGate, Decision] | None:
    """Return the most conservative answer (``deny`` over ``ask``), the first among equals; ``None`` if all allow."""
    worst = None
    rank = RANK["transform"]
    for asked in rounds:
        for pair in asked:
            if pair[1] is not ALLOW and RANK[pair[1].outcome] > rank:
                worst, rank = pair, RANK[pair[1].outcome]
    return worst


def signals_of(asked: Iterable[tuple[BoundGate, Decision]]) -> dict[str, list[dict[str, Any]]]:
    """Return what hooks signalled, for the caller: by name, and then in the order in which they were asked."""
    merged: dict[str, list[dict[str, Any]]] = {}
    for gate, decision in asked:
        if decision.signals and gate.kind == "hook":
            for name, value in canonical.decode(canonical.encode(dict(decision.signals))).items():
                merged.setdefault(name, []).append({"hook": gate.id, "value": value})
    return dict(sorted(merged.items()))


def outcome_of(asked: Asked) -> str:
    """Return what a round of answers comes to: the most conservative of them."""
    return max((decision.outcome for _, decision in asked), key=RANK.__getitem__, default="allow")


def by(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return who decided, as a denial records it: the gate, and its rule and place where there is one."""
    who: dict[str, Any] = {gate.kind: gate.id}
    rule = rule_of(gate, decision)
    if rule is not None:
        who["rule"] = rule
    if gate.place:
        who["place"] = gate.place
    return who


def rule_of(gate: BoundGate, decision: Decision) -> str | int | None:
    """Return the rule that a policy named in its signals: its place if that is known, else its index or name."""
    rule = decision.signals.get("rule") if gate.kind == "policy" else None
    if type(rule) is int and 0 <= rule <= canonical.MAX_INTEGER:
        return gate.rules[rule] if rule < len(gate.rules) else rule
    return recordable(rule) if type(rule) is str else None


def tag_that_asks(tags: Collection[str], policies: Asked) -> str | None:
    """Return the tag of an ability for which a person decides, as *policies* answered; ``None`` if there is none."""
    if APPROVAL_GATE in tags:
        return APPROVAL_GATE
    return next((tag for tag in ASKING if tag in tags and speaker(tag, policies) is None), None)


def speaker(tag: str, policies: Asked) -> tuple[BoundGate, Decision] | None:
    """Return the policy that names *tag* and allowed the call: in its match, or in that of the rule which decided."""
    return next((pair for pair in policies if pair[1].outcome == "allow" and _names(*pair, tag)), None)


def may_speak(gate: BoundGate, tags: Collection[str]) -> bool:
    """Say whether a policy may decide for a tag among *tags* that no person is asked."""
    named = gate.tags.union(*gate.rule_tags)
    return any(tag in named and tag in tags for tag in ASKING)


def _names(gate: BoundGate, decision: Decision, tag: str) -> bool:
    rule = decision.signals.get("rule")
    # a record has the place of a rule, which several on one line share
    named = [tags for at, tags in enumerate(gate.rule_tags) if rule in (at, gate.rules[at])]
    return tag in gate.tags or (bool(named) and all(tag in tags for tags in named))


def minutes(asked: Asked, **said: Any) -> bytes:
    """Return the canonical payload of a round: who was asked, what it came to, and what else is *said* of it.

    Members are joined as bytes: arguments may be nested as deeply as intake accepts, and stand a level lower here.
    """
    members = {name: canonical.encode(value) for name, value in said.items()}
    members["asked"] = b"[%b]" % b",".join(_line(gate, decision) for gate, decision in asked)
    members["decision"] = canonical.encode(outcome_of(asked))
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), members[name]) for name in sorted(members))


def _line(gate: BoundGate, decision: Decision) -> bytes:
    """Return the line of one gate in ``hook.fired`` or ``policy.check``: a hook has signals there, a policy a rule.

    Signals that cannot be recorded are left out, never the line.
    """
    line: dict[str, Any] = {gate.kind: gate.id, "digest": gate.digest, "decision": decision.outcome}
    if decision.reason:
        line["reason"] = recordable(decision.reason)
    rule = rule_of(gate, decision)
    if rule is not None:
        line["rule"] = rule
    if decision.signals and gate.kind == "hook":
        with suppress(Exception):
            return canonical.admit({**line, "signals": dict(decision.signals)})
    return canonical.encode(line)


def in_order(gates: Iterable[tuple[int, BoundGate]]) -> Sequence[BoundGate]:
    """Return gates by priority, higher first, then by id."""
    return [gate for _, gate in sorted(gates, key=lambda pair: (-pair[0], pair[1].id))]


def decided_by(by: Any) -> str:
    """Return who refused something and where that is written, as the end of a sentence; nothing where it is said."""
    found = decided_at(by)
    return f" (by {found})" if found else ""


def decided_at(by: Any) -> str | None:
    """Return which hook, policy or skill decided and where it is written; ``None`` where the reason names it."""
    if not isinstance(by, dict) or "scope" in by:
        return None
    maker = next((f"{kind} {_named(by[kind])}" for kind in ("hook", "policy", "skill") if kind in by), "")
    place = by.get("rule", by.get("place"))
    where = f", {place}" if place and isinstance(place, str) else ""
    return f"{maker}{where}" if maker else None


def _named(value: Any) -> str:
    """Return a name from a record, where it may be sealed."""
    return value if isinstance(value, str) else "[sealed]"
