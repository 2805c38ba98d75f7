"""Decides a call under a charter, without I/O: steps 1 to 4 of the door.

`judge` is a generator. It asks inline pure gates itself, yields every other gate with its call, is sent the answer, and
returns the verdict. The door answers by running the gate; ``explain``, what-if and re-derivation answer from the record.
"""

from collections.abc import Generator, Mapping
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import attrs

from . import canonical
from .bindings import Bindings, Bound, Caller
from .contracts import Call, Decision, Json, Object
from .errors import IntakeError
from .gates import Asked, BoundGate, Clock, answer, by, merge
from .schema import Violation, suggest

MAX_NESTING: Final = 16

Question: TypeAlias = tuple[BoundGate, Call]
Judging: TypeAlias = "Generator[Question, Decision, Verdict]"


@attrs.frozen
class Circumstances:
    """What a decision may depend on beside the call: the recorded time, the session, and the facts that gates read."""

    now: str
    session: str
    facts: Mapping[str, Any]


@attrs.define(eq=False)
class Verdict:
    """What was decided about one call, who was asked, and the final arguments (*raw*: their canonical bytes)."""

    bound: Bound | None
    args: Any
    raw: bytes
    outcome: Literal["allow", "ask", "deny"] = "allow"
    code: str = ""
    reason: str = ""
    by: Object | None = None
    first: bytes | None = None
    rewrites: Asked = attrs.field(factory=list)
    hooks: Asked = attrs.field(factory=list)
    policies: Asked = attrs.field(factory=list)
    violations: tuple[Violation, ...] = ()
    subject: str = "arguments"

    def deny(self, code: str, reason: str, who: Object | None = None) -> "Verdict":
        """Refuse, for the first time; the first reason stays."""
        self.outcome, self.code, self.reason, self.by = "deny", code, reason, who
        return self


def judge(  # noqa: PLR0913 - a decision is a function of exactly these
    bindings: Bindings,
    caller: Caller,
    ability: str,
    args: Json,
    raw: bytes,
    when: Circumstances,
    clock: Clock,
) -> Judging:
    """Decide whether *caller* may use *ability* with *args* (canonical: *raw*); *clock* measures late answers."""
    bound = bindings.abilities.get(ability)
    if bound is None:
        known = suggest(ability, bindings.abilities)
        return Verdict(None, args, raw).deny("TOOL_NOT_FOUND", f"no ability {ability!r} is declared{known}")
    verdict = Verdict(bound, args, raw)
    if not caller.scope.allows(bound):
        return verdict.deny(
            "TOOL_NOT_ALLOWED", f"{ability!r} is outside {caller.scope.why}", {"scope": caller.scope.why}
        )
    if caller.depth > MAX_NESTING:
        return verdict.deny("TOOL_NOT_ALLOWED", f"calls are nested deeper than {MAX_NESTING}")
    if not bound.takes.valid(args):
        return _violated(verdict, bound.takes.violations(args), "arguments")
    if bound.rewriters:
        yield from _rewrite(verdict, bindings, caller, when, clock)
        if verdict.code:
            return verdict
    if bound.guards or bound.policies:
        call = make_call(bindings, caller, bound, verdict.args, verdict.raw, when)
        for gates, asked in ((bound.guards, verdict.hooks), (bound.policies, verdict.policies)):
            for gate in gates:
                if gate.holds is None or gate.holds(call):
                    seen = attrs.evolve(call, facts=_facts(gate, when)) if gate.reads else call
                    decision = answer(gate, clock, seen) if gate.pure else (yield gate, seen)
                    asked.append((gate, decision))
        _conclude(verdict, binding=bindings.enforcement == "enforce")
    if verdict.outcome == "allow" and "approval-gate" in bound.tags:
        verdict.deny("NEEDS_HUMAN", "its tag approval-gate wants a person to decide", {"tag": "approval-gate"})
        verdict.outcome = "ask"
    return verdict


def make_call(  # noqa: PLR0913 - all that a call is made of
    bindings: Bindings, caller: Caller, bound: Bound, args: Any, raw: bytes, when: Circumstances
) -> Call:
    """Return the call as gates see it, without facts."""
    principal = caller.principal
    identity = b'{"ability":"%b","args":%b,"principal":"%b"}' % (bound.id.encode(), raw, principal.id.encode())
    return Call(
        bound.id, bound.kind, args, bound.effects, bound.tags, principal, caller.role, caller.skill,
        bindings.enforcement, when.session, when.now, sha256(identity).hexdigest(), {},
    )  # fmt: skip


def _facts(gate: BoundGate, when: Circumstances) -> dict[str, Any]:
    return {name: when.facts[name] for name in gate.reads}


def _rewrite(
    verdict: Verdict, bindings: Bindings, caller: Caller, when: Circumstances, clock: Clock
) -> Generator[Question, Decision, None]:
    """Ask the rewriters in turn, each on the last output; what they leave is validated again."""
    bound = verdict.bound
    assert bound is not None
    for gate in bound.rewriters:
        call = make_call(bindings, caller, bound, verdict.args, verdict.raw, when)
        if gate.holds is not None and not gate.holds(call):
            continue
        if gate.reads:
            call = attrs.evolve(call, facts=_facts(gate, when))
        decision = answer(gate, clock, call) if gate.pure else (yield gate, call)
        verdict.rewrites.append((gate, decision))
        if decision.outcome == "transform":
            _replace(verdict, decision, gate)
        elif decision.outcome != "allow":
            _refuse(verdict, gate, decision)
        if verdict.code:
            return
    if verdict.first is not None and not bound.takes.valid(verdict.args):
        _violated(verdict, bound.takes.violations(verdict.args), "transform")


def _replace(verdict: Verdict, decision: Decision, gate: BoundGate) -> None:
    try:
        raw = canonical.admit(None if decision.args is None else dict(decision.args))
    except IntakeError as problem:
        verdict.deny("GATE_DENIED", f"{gate.id} answered transform with {problem}", by(gate, decision))
        return
    if decision.args is None:
        verdict.deny("GATE_DENIED", f"{gate.id} answered transform without arguments", by(gate, decision))
        return
    verdict.first = verdict.first or verdict.raw
    verdict.raw, verdict.args = raw, canonical.decode(raw)


def _conclude(verdict: Verdict, *, binding: bool) -> None:
    """Merge all answers; policies bind only where the charter enforces."""
    worst = merge(verdict.hooks) if not binding else merge([*verdict.hooks, *verdict.policies])
    if worst is not None:
        _refuse(verdict, *worst)


def _refuse(verdict: Verdict, gate: BoundGate, decision: Decision) -> None:
    reason = decision.reason or f"{gate.kind} {gate.id!r} answered {decision.outcome}"
    verdict.deny("NEEDS_HUMAN" if decision.outcome == "ask" else "GATE_DENIED", reason, by(gate, decision))
    verdict.outcome = "ask" if decision.outcome == "ask" else "deny"


def _violated(verdict: Verdict, violations: tuple[Violation, ...], subject: str) -> Verdict:
    verdict.violations, verdict.subject = violations, subject
    first = violations[0] if violations else Violation("$", "does not fit")
    return verdict.deny("SCHEMA_VIOLATION", f"{first.path}: {first.message}")
