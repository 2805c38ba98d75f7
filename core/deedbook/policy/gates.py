"""Bound hooks and policies: ask them safely, merge the answers, record who was asked.

Every gate has an answer: an exception, a late answer, or an answer that the gate may not give is a denial.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from inspect import iscoroutine
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import ALLOW, Call, Decision
from deedbook.contract.lifecycle import TEXTS, NoAnswer
from deedbook.format import canonical
from deedbook.format.errors import IntakeError, describe, describe_crash, recordable

from .kinds import KINDS

Clock: TypeAlias = Callable[[], float]

RANK: Final = {"allow": 0, "advisory": 1, "transform": 2, "ask": 3, "deny": 4}
"""The strictest answer wins: the highest rank. From ``ask`` on, a call does not continue by itself."""

APPROVAL_GATE: Final = "approval-gate"
"""The tag of an ability whose every call waits for a person."""
ASK_BY_DEFAULT: Final = "ask-by-default"
"""The tag of an ability for which a person is asked if no rule of a policy matches and its default is to deny."""
ASKING: Final = ("destructive", "irreversible")
"""The tags of abilities whose calls wait for a person, unless a policy that names the tag allows the call."""

LOOSENABLE: Final = (*ASKING, *sorted(name for name, kind in KINDS.items() if kind.needs_policy))
"""What a policy can loosen: the question of a tag, and the denial of a kind that needs a policy."""


@attrs.frozen(eq=False, kw_only=True)
class BoundGate:
    """One hook or policy, ready to be asked.

    *may* holds the outcomes it is allowed to give (``allow`` always among them), *limit* the seconds it may take,
    *applies* tests the part of its match that depends on the call (``None``: always). *rules* are the places of its
    rules, if it names one by ``signals["rule"]``, *signals* the names of those that it may carry (``None``: any). A
    gate that *waits* runs outside the calling thread. *mask* removes secrets from reasons. *tags* are those that a
    policy's match names, *rule_tags* those that each of its rules names. A policy of a pack has only what it may
    loosen: *loosens* (``None``: everything), and of these tags no others. *limits*: a policy that only limits calls.
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
    applies: Callable[[Call], bool] | None = None
    rules: tuple[str, ...] = ()
    place: str = ""
    signals: frozenset[str] | None = None
    tags: frozenset[str] = frozenset()
    rule_tags: tuple[frozenset[str], ...] = ()
    loosens: frozenset[str] | None = None
    limits: bool = False
    mask: Callable[[str], str] = str


Answers: TypeAlias = list[tuple[BoundGate, Decision]]


def answer(gate: BoundGate, clock: Clock, *subject: Any) -> Decision:
    """Ask *gate* about *subject*; always returns a decision, and raises nothing but `KeyboardInterrupt`."""
    begun = clock()
    try:
        decision = gate.ask(*subject)
        if clock() - begun <= gate.limit and (decision is ALLOW or _is_valid(gate, decision)):
            return _mask_reason(gate, decision)
    except KeyboardInterrupt:
        raise
    except NoAnswer as problem:
        return refusal(str(problem))
    except BaseException as problem:  # noqa: BLE001 - a gate that exits or is cancelled has not allowed anything
        return refusal(describe_crash(problem, gate.mask))
    return _explain_refusal(gate, decision)


def checked_answer(gate: BoundGate, decision: Any) -> Decision:
    """Return an answer from a record or another process, or a refusal if *gate* may not give it."""
    try:
        return decision if _is_valid(gate, decision) else _explain_refusal(gate, decision)
    except Exception as problem:  # noqa: BLE001 - as in `answer`
        return refusal(describe(problem))


def _mask_reason(gate: BoundGate, decision: Decision) -> Decision:
    """Return *decision* with a masked reason: reasons are shown to models, printed, and truncated."""
    reason = gate.mask(decision.reason) if decision.reason else decision.reason
    return decision if reason == decision.reason else attrs.evolve(decision, reason=reason)


def refusal(reason: str) -> Decision:
    """Return a denial with a reason that can be recorded, of bounded length."""
    return Decision("deny", recordable(reason))


def _is_valid(gate: BoundGate, decision: Any) -> bool:
    """Return whether *decision* is a complete decision that *gate* may give; the types of plugins are not trusted."""
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
    """Return the fault of a hook's signals, or ``None``."""
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


def _explain_refusal(gate: BoundGate, decision: Any) -> Decision:
    """Return a refusal with the reason why an answer is invalid, without quoting its content."""
    if iscoroutine(decision):
        decision.close()  # otherwise Python warns about a coroutine that is not awaited
    may = ", ".join(sorted(gate.may))
    if type(decision) is not Decision:
        return refusal(f"answered {type(decision).__name__}, not a Decision; it may answer {may}")
    if type(decision.outcome) is not str or decision.outcome not in gate.may:
        given = decision.outcome if type(decision.outcome) is str else type(decision.outcome).__name__
        return refusal(f"answered {given[:40]}; it may answer {may}")
    if not _is_valid(gate, decision):
        ill = _ill_signal(gate, decision) if isinstance(decision.signals, Mapping) else None
        return refusal(
            ill or "answered with a reason that is no text, signals that are no mapping, or transform without args"
        )
    return refusal(f"answered after its limit of {gate.limit * 1000:g} ms")


def merge(*rounds: Iterable[tuple[BoundGate, Decision]]) -> tuple[BoundGate, Decision] | None:
    """Return the strictest answer (``deny`` over ``ask``), the first among equals; ``None`` if all allow."""
    worst = None
    rank = RANK["transform"]
    for asked in rounds:
        for pair in asked:
            if pair[1] is not ALLOW and RANK[pair[1].outcome] > rank:
                worst, rank = pair, RANK[pair[1].outcome]
    return worst


def signals_of(asked: Iterable[tuple[BoundGate, Decision]]) -> dict[str, list[dict[str, Any]]]:
    """Return the signals of hooks for the caller: by name, then in the order of the hooks."""
    merged: dict[str, list[dict[str, Any]]] = {}
    for gate, decision in asked:
        if decision.signals and gate.kind == "hook":
            for name, value in canonical.decode(canonical.encode(dict(decision.signals))).items():
                merged.setdefault(name, []).append({"hook": gate.id, "value": value})
    return dict(sorted(merged.items()))


def outcome_of(asked: Answers) -> str:
    """Return the strictest outcome of a round of answers."""
    return max((decision.outcome for _, decision in asked), key=RANK.__getitem__, default="allow")


def decision_source(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return the deciding gate as a denial records it, with its rule and place if known."""
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


def tag_that_asks(tags: Collection[str], policies: Answers) -> str | None:
    """Return the tag of an ability because of which a person decides, given the answers of *policies*, or ``None``."""
    if APPROVAL_GATE in tags:
        return APPROVAL_GATE
    return next((tag for tag in ASKING if tag in tags and allowing_policy(tag, policies) is None), None)


def allowing_policy(tag: str, policies: Answers) -> tuple[BoundGate, Decision] | None:
    """Return the policy that names *tag* (in its match, or in that of the deciding rule) and allowed the call."""
    return next((pair for pair in policies if pair[1].outcome == "allow" and _names(*pair, tag)), None)


def may_allow_tag(gate: BoundGate, tags: Collection[str]) -> bool:
    """Return whether a policy may decide, for a tag among *tags*, that no person is asked."""
    named = gate.tags.union(*gate.rule_tags)
    return any(tag in named and tag in tags for tag in ASKING)


def is_covered(policies: Answers) -> bool:
    """Return whether one of *policies* decided: it answered more than advice, and does more than limit calls."""
    return any(decision.outcome != "advisory" and not gate.limits for gate, decision in policies)


def _names(gate: BoundGate, decision: Decision, tag: str) -> bool:
    rule = decision.signals.get("rule")
    # a record has the place of a rule; rules on one line share a place
    named = [tags for at, tags in enumerate(gate.rule_tags) if rule in (at, gate.rules[at])]
    return tag in gate.tags or (bool(named) and all(tag in tags for tags in named))


def decision_payload(asked: Answers, **more: Any) -> bytes:
    """Return the canonical payload of a round: the answers, the outcome, and the members in *more*.

    Members are joined as bytes: arguments may be nested as deeply as intake accepts, and are one level deeper here.
    """
    members = {name: canonical.encode(value) for name, value in more.items()}
    members["asked"] = b"[%b]" % b",".join(_encoded_line(gate, decision) for gate, decision in asked)
    members["decision"] = canonical.encode(outcome_of(asked))
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), members[name]) for name in sorted(members))


def gate_line(gate: BoundGate, decision: Decision) -> dict[str, Any]:
    """Return the line of one gate in ``hook.fired`` or ``policy.check``, without signals; a policy's has its rule."""
    line: dict[str, Any] = {gate.kind: gate.id, "digest": gate.digest, "decision": decision.outcome}
    if decision.reason:
        line["reason"] = recordable(decision.reason)
    rule = rule_of(gate, decision)
    if rule is not None:
        line["rule"] = rule
    return line


def _encoded_line(gate: BoundGate, decision: Decision) -> bytes:
    """Return the canonical line of one gate, for a hook with its signals.

    Signals that cannot be recorded are left out, never the line.
    """
    line = gate_line(gate, decision)
    if decision.signals and gate.kind == "hook":
        with suppress(Exception):
            return canonical.admit({**line, "signals": dict(decision.signals)})
    return canonical.encode(line)


def in_order(gates: Iterable[tuple[int, BoundGate]]) -> Sequence[BoundGate]:
    """Return gates by priority, higher first, then by id."""
    return [gate for _, gate in sorted(gates, key=lambda pair: (-pair[0], pair[1].id))]


def is_feature(by: Mapping[str, Any] | None) -> bool:
    """Return whether a recorded decision is that of a feature."""
    return by is not None and "feature" in by


def describe_source(by: Any) -> str:
    """Return who refused a call, as the end of a sentence; empty if the reason names it."""
    found = source_place(by)
    return f" (by {found})" if found else ""


def source_place(by: Any) -> str | None:
    """Return which hook, policy, skill or feature decided, and its place; ``None`` if the reason names it."""
    if not isinstance(by, dict) or "scope" in by:
        return None
    maker = next(
        (f"{kind} {_plain_name(by[kind])}" for kind in ("hook", "policy", "skill", "feature") if kind in by), ""
    )
    place = by.get("rule", by.get("place"))
    where = f", {place}" if place and isinstance(place, str) else ""
    return f"{maker}{where}" if maker else None


def _plain_name(value: Any) -> str:
    """Return a name from a record, where it may be sealed."""
    return value if isinstance(value, str) else "[sealed]"
