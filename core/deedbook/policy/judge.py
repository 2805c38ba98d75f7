"""Decides a call under a charter, without I/O: steps 1 to 4 of the door.

`judge` is a generator. It asks inline pure gates itself, yields every other gate with its call, is sent the answer, and
returns the verdict. The door answers by running the gate; ``explain``, what-if and re-derivation answer from the
record.
"""

from collections.abc import Generator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from deedbook.contract import Call, Decision, Json, Object
from deedbook.format import canonical
from deedbook.format.errors import describe, recordable
from deedbook.format.schema import Violation, suggest

from .bindings import Bindings
from .bound import BoundAbility, Caller
from .gates import Asked, BoundGate, Clock, answer, by, heard, merge, refusal, signals_of, tag_that_asks
from .requests import Approved, call_digest

MAX_NESTING: Final = 16
NO_POLICY: Final = "no policy speaks of this call; memory is denied unless one that names kind: memory allows it"

Question: TypeAlias = tuple[BoundGate, Call]
Judging: TypeAlias = "Generator[Question, Decision, Verdict]"


class DecisionContext(NamedTuple):
    """What a decision may depend on beside the call: the recorded time, the session, and the facts that gates read.

    *approved* is what a person has approved, where one was asked: an ask that is just that becomes an allow.
    """

    now: str
    session: str
    facts: Mapping[str, Any]
    approved: Approved | None = None


@attrs.define(eq=False)
class Verdict:
    """What was decided about one call, who was asked, and the final arguments (*raw*: their canonical bytes).

    *code* is empty where the call may go on; *first* holds the arguments before rewriters changed them.
    """

    bound: BoundAbility | None
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

    @property
    def signals(self) -> Object:
        """What hooks signalled, merged for the caller."""
        return signals_of((*self.rewrites, *self.hooks))

    def deny(self, code: str, reason: str, who: Object | None = None) -> "Verdict":
        """Refuse."""
        self.outcome, self.code, self.reason, self.by = "deny", code, reason, who
        return self

    def ask(self, reason: str, who: Object) -> "Verdict":
        """Leave it to a person."""
        self.outcome, self.code, self.reason, self.by = "ask", "NEEDS_HUMAN", reason, who
        return self


def judge(
    bindings: Bindings,
    caller: Caller,
    ability: str,
    args: Json,
    raw: bytes,
    when: DecisionContext,
    clock: Clock,
) -> Judging:
    """Decide whether *caller* may use *ability* with *args* (canonical: *raw*), a copy that is the judge's own.

    *clock* counts seconds, for late answers. Raises `KeyError` where *when* lacks a fact that a gate reads.
    """
    verdict = admissible(bindings, caller, ability, args, raw)
    bound = verdict.bound
    if bound is None or verdict.code:
        return verdict
    if bound.rewriters:
        yield from _rewrite(verdict, bound, bindings, caller, when, clock)
        if verdict.code:
            return verdict
    if bound.guards or bound.policies:
        call = make_call(bindings, caller, bound, verdict.args, verdict.raw, when)
        for gates, asked in ((bound.guards, verdict.hooks), (bound.policies, verdict.policies)):
            for gate in gates:
                if gate.holds is None or gate.holds(call):
                    seen = _informed(call, gate, when) if gate.reads else call
                    decision = answer(gate, clock, seen) if gate.pure else heard(gate, (yield gate, seen))
                    asked.append((gate, decision))
    _conclude(verdict, bound, bindings, caller, when)
    return verdict


def admitted(bound: BoundAbility | None, args: Json) -> bytes:
    """Return the canonical bytes of arguments for *bound*; raises `IntakeError` for what cannot be recorded."""
    return canonical.admit(canonical.without_big_integers(args) if bound and bound.big_integers else args)


def admissible(bindings: Bindings, caller: Caller, ability: str, args: Any, raw: bytes) -> Verdict:
    """Take steps 1 to 3: find the ability, look at the scope of *caller*, validate *args*. No gate is asked."""
    bound = bindings.find(ability)
    if bound is None:
        known = suggest(ability, bindings.abilities)
        return Verdict(None, args, raw).deny("TOOL_NOT_FOUND", f"no ability {ability!r} is declared{known}")
    verdict = Verdict(bound, args, raw)
    if not caller.scope.allows(bound) or caller.depth > MAX_NESTING:
        return _outside(verdict, bound, caller)
    if type(args) is not dict or not bound.takes.valid(args):
        return _violated(verdict, bound, "arguments")
    return _within(verdict, bound, caller)


def make_call(
    bindings: Bindings, caller: Caller, bound: BoundAbility, args: Any, raw: bytes, when: DecisionContext
) -> Call:
    """Return the call as gates see it, without facts."""
    return Call(
        bound.id, bound.kind, args, bound.effects, bound.tags, caller.principal, caller.role, caller.skill,
        bindings.enforcement, when.session, when.now, raw, {}, bound.scopes, bound.paths,
    )  # fmt: skip


def _outside(verdict: Verdict, bound: BoundAbility, caller: Caller) -> Verdict:
    if caller.scope.allows(bound):
        return verdict.deny("TOOL_NOT_ALLOWED", f"calls are nested deeper than {MAX_NESTING}")
    why = caller.scope.why
    return verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is outside {why}", {"scope": why})


def _within(verdict: Verdict, bound: BoundAbility, caller: Caller) -> Verdict:
    """Refuse where the scope of *caller* depends on the arguments, and does not have these."""
    scope = caller.scope
    if scope.commands and (lack := scope.lacks(bound.id, verdict.args)) is not None:
        return verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is outside {lack}", {"scope": scope.why})
    why = bound.outside(caller, verdict.args) if bound.outside is not None else None
    return verdict if why is None else verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is about {why}", {"scope": why})


def _informed(call: Call, gate: BoundGate, when: DecisionContext) -> Call:
    """Return *call* with the facts that *gate* declares, in a copy of its own: what is recorded stays as it was."""
    facts = {name: when.facts[name] for name in gate.reads}
    return attrs.evolve(call, facts=canonical.decode(canonical.encode(facts)))


def _rewrite(
    verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, when: DecisionContext, clock: Clock
) -> Generator[Question, Decision, None]:
    """Ask the rewriters in turn, each on a copy of the last output; what they leave is validated again.

    One that refuses ends the judging, since what it would have rewritten is unknown; one that wants a person does not:
    a guard may still deny.
    """
    for gate in bound.rewriters:
        call = make_call(bindings, caller, bound, canonical.decode(verdict.raw), verdict.raw, when)
        if gate.holds is not None and not gate.holds(call):
            continue
        seen = _informed(call, gate, when) if gate.reads else call
        decision = answer(gate, clock, seen) if gate.pure else heard(gate, (yield gate, seen))
        if decision.outcome == "transform":
            decision = _replace(verdict, decision)
        verdict.rewrites.append((gate, decision))
        if decision.outcome == "deny":
            _refuse(verdict, gate, decision)
            return
    if verdict.first is not None:
        if bound.takes.valid(verdict.args):
            _within(verdict, bound, caller)
        else:
            _violated(verdict, bound, "transform")


def _replace(verdict: Verdict, decision: Decision) -> Decision:
    """Go on with the arguments of a transform; return what it was worth: a refusal, if they cannot be recorded."""
    try:
        raw = canonical.admit(dict(decision.args or {}))
    except Exception as problem:  # noqa: BLE001 - a mapping of a plugin's own may raise anything
        return refusal(f"answered transform with what cannot be recorded: {describe(problem)}")
    if raw != verdict.raw:
        verdict.first = verdict.first or verdict.raw
        verdict.raw, verdict.args = raw, canonical.decode(raw)
    return decision


def _conclude(verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, when: DecisionContext) -> None:
    """Merge all answers (policies bind only where the charter enforces), and see to it that nobody changed the call."""
    if verdict.hooks or verdict.policies or verdict.rewrites:
        binding = verdict.policies if bindings.enforcement == "enforce" else ()
        worst = merge(verdict.rewrites, verdict.hooks, binding)
        if worst is not None:
            _refuse(verdict, *worst)
        _check_untouched(verdict)
    if bound.kind == "memory" and verdict.outcome != "deny" and not verdict.policies:
        verdict.deny("GATE_DENIED", NO_POLICY, {"rule": "memory"})
    if verdict.outcome == "allow" and bound.tags and (tag := tag_that_asks(bound.tags, verdict.policies)):
        verdict.ask(f"its tag {tag} wants a person to decide", {"rule": tag})
    if when.approved is not None and verdict.outcome == "ask":
        _approve(verdict, bound, bindings, caller, when.approved)


def _approve(verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, approved: Approved) -> None:
    """Let an ask go on that is the one which a person approved: the same call, charter, asking gate and reason."""
    call = call_digest(bound.id, verdict.raw, caller.principal.id)
    by = None if verdict.by is None else dict(verdict.by)
    if approved == Approved(call, bindings.charter.digest, recordable(verdict.reason), by):
        verdict.outcome, verdict.code, verdict.reason, verdict.by = "allow", "", "", None


def _check_untouched(verdict: Verdict) -> None:
    """Guards share one copy of the arguments: if one changed it, those after it were asked about another call."""
    args = canonical.decode(verdict.raw)
    if args != verdict.args and verdict.outcome != "deny":
        names = ", ".join(f"{gate.kind} {gate.id!r}" for gate, _ in (*verdict.hooks, *verdict.policies))
        why = "only a hook that declares `rewrites` may, by answering transform"
        verdict.deny("GATE_DENIED", f"the arguments were changed while they were judged by {names}; {why}")
    verdict.args = args


def _refuse(verdict: Verdict, gate: BoundGate, decision: Decision) -> None:
    reason = recordable(decision.reason) or f"{gate.kind} {gate.id!r} answered {decision.outcome}"
    if decision.outcome == "ask":
        verdict.ask(reason, by(gate, decision))
    else:
        verdict.deny("GATE_DENIED", reason, by(gate, decision))


def _violated(verdict: Verdict, bound: BoundAbility, subject: str) -> Verdict:
    violations = bound.takes.violations(verdict.args) or (Violation("$", "arguments are an object"),)
    verdict.violations, verdict.subject = violations, subject
    return verdict.deny("SCHEMA_VIOLATION", f"{violations[0].path}: {violations[0].message}")
