"""Decide a call under a charter, without I/O: steps 1 to 4 of the door.

`judge` is a generator. It asks inline pure gates itself, yields every other gate with its call, receives the answer,
and returns the verdict. The door answers by running the gate; ``explain``, what-if and re-derivation answer from the
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
from .gates import (
    Answers,
    BoundGate,
    Clock,
    answer,
    checked_answer,
    decision_source,
    is_covered,
    merge,
    refusal,
    signals_of,
    tag_that_asks,
)
from .kinds import KINDS
from .requests import ApprovedCall, call_digest

MAX_NESTING: Final = 16
NO_POLICY: Final = "no policy speaks of this call; {0} is denied unless one that names kind: {0} allows it"
NOT_LOOSENED: Final = (
    "only policies of packs allow this call, and none may loosen {0}; add may_loosen: [{0}] to the pack"
)

Question: TypeAlias = tuple[BoundGate, Call]
Judging: TypeAlias = "Generator[Question, Decision, Verdict]"


class DecisionContext(NamedTuple):
    """The context of a decision besides the call: the recorded time, the session, and the facts that gates read.

    *approved* is a person's approval, if one was given: an ask for exactly that becomes an allow.
    """

    now: str
    session: str
    facts: Mapping[str, Any]
    approved: ApprovedCall | None = None


@attrs.define(eq=False)
class Verdict:
    """The decision about one call, the gates that were asked, and the final arguments (*raw*: their canonical bytes).

    *code* is empty if the call may continue; *original* holds the arguments before rewriters changed them.
    """

    bound: BoundAbility | None
    args: Any
    raw: bytes
    outcome: Literal["allow", "ask", "deny"] = "allow"
    code: str = ""
    reason: str = ""
    by: Object | None = None
    original: bytes | None = None
    rewrites: Answers = attrs.field(factory=list)
    hooks: Answers = attrs.field(factory=list)
    policies: Answers = attrs.field(factory=list)
    violations: tuple[Violation, ...] = ()
    subject: str = "arguments"

    @property
    def signals(self) -> Object:
        """The signals of hooks, merged for the caller."""
        return signals_of((*self.rewrites, *self.hooks))

    def deny(self, code: str, reason: str, who: Object | None = None) -> "Verdict":
        """Deny the call."""
        self.outcome, self.code, self.reason, self.by = "deny", code, reason, who
        return self

    def ask(self, reason: str, who: Object) -> "Verdict":
        """Leave the call to a person."""
        self.outcome, self.code, self.reason, self.by = "ask", "NEEDS_HUMAN", reason, who
        return self


def judge(
    bindings: Bindings, caller: Caller, ability: str, args: Json, raw: bytes, context: DecisionContext, clock: Clock
) -> Judging:
    """Decide whether *caller* may use *ability* with *args* (canonical: *raw*), a private copy.

    *clock* counts seconds, for late answers. Raises `KeyError` where *context* lacks a fact that a gate reads.
    """
    verdict = check_admission(bindings, caller, ability, args, raw)
    bound = verdict.bound
    if bound is None or verdict.code:
        return verdict
    if bound.rewriters:
        yield from _rewrite(verdict, bound, bindings, caller, context, clock)
        if verdict.code:
            return verdict
    if bound.guards or bound.policies:
        call = make_call(bindings, caller, bound, verdict.args, verdict.raw, context)
        for gates, asked in ((bound.guards, verdict.hooks), (bound.policies, verdict.policies)):
            for gate in gates:
                if gate.applies is None or gate.applies(call):
                    seen = _with_facts(call, gate, context) if gate.reads else call
                    decision = answer(gate, clock, seen) if gate.pure else checked_answer(gate, (yield gate, seen))
                    asked.append((gate, decision))
    if bound.default is not None and not is_covered(verdict.policies):
        verdict.policies.append(bound.default)
    _conclude(verdict, bound, bindings, caller, context)
    return verdict


def encode_args(bound: BoundAbility | None, args: Json) -> bytes:
    """Return the canonical bytes of arguments for *bound*; raises `IntakeError` for values that cannot be recorded."""
    return canonical.admit(canonical.without_big_integers(args) if bound and bound.big_integers else args)


def check_admission(bindings: Bindings, caller: Caller, ability: str, args: Any, raw: bytes) -> Verdict:
    """Take steps 1 to 3: find the ability, check the scope of *caller*, validate *args*. No gate is asked."""
    bound = bindings.find(ability)
    if bound is None:
        if (why := bindings.unknown_capability(caller.role, ability)) is not None:
            why = f"{ability!r} is an unknown capability on the card of {caller.role}: {why}"
            return Verdict(None, args, raw).deny("TOOL_NOT_FOUND", why)
        known = suggest(ability, bindings.abilities)
        return Verdict(None, args, raw).deny("TOOL_NOT_FOUND", f"no ability {ability!r} is declared{known}")
    verdict = Verdict(bound, args, raw)
    if not caller.scope.allows(bound) or caller.depth > MAX_NESTING:
        return _deny_scope(verdict, bound, caller)
    if caller.limits:
        from .limits import ability_violation

        if (found := ability_violation(caller.limits, bound)) is not None:
            return _deny_limits(verdict, bound, *found)
    if type(args) is not dict or not bound.takes.valid(args):
        return _deny_violation(verdict, bound, "arguments")
    return _check_arguments_scope(verdict, bound, caller)


def make_call(
    bindings: Bindings, caller: Caller, bound: BoundAbility, args: Any, raw: bytes, context: DecisionContext
) -> Call:
    """Return the call as gates see it, without facts."""
    return Call(
        bound.id, bound.kind, args, bound.effects, bound.tags, caller.principal, caller.role, caller.skill,
        bindings.enforcement, context.session, context.now, raw, {}, bound.scopes, bound.paths, caller.mode,
    )  # fmt: skip


def _deny_scope(verdict: Verdict, bound: BoundAbility, caller: Caller) -> Verdict:
    if caller.scope.allows(bound):
        return verdict.deny("TOOL_NOT_ALLOWED", f"calls are nested deeper than {MAX_NESTING}")
    why = caller.scope.why
    return verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is outside {why}", {"scope": why})


def _deny_limits(verdict: Verdict, bound: BoundAbility, limits: str, why: str) -> Verdict:
    return verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is outside {limits}: {why}", {"scope": limits})


def _check_arguments_scope(verdict: Verdict, bound: BoundAbility, caller: Caller) -> Verdict:
    """Deny the call if the scope or the limits of *caller* depend on the arguments and exclude these."""
    if caller.limits:
        from .limits import path_violation

        if (found := path_violation(caller.limits, bound, verdict.args)) is not None:
            return _deny_limits(verdict, bound, *found)
    scope = caller.scope
    if scope.commands and (lack := scope.lacks(bound.id, verdict.args)) is not None:
        return verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is outside {lack}", {"scope": scope.why})
    why = bound.scope_violation(caller, verdict.args) if bound.scope_violation is not None else None
    return verdict if why is None else verdict.deny("TOOL_NOT_ALLOWED", f"{bound.id!r} is about {why}", {"scope": why})


def _with_facts(call: Call, gate: BoundGate, context: DecisionContext) -> Call:
    """Return *call* with the facts that *gate* declares, as a copy, so that the recorded facts cannot change."""
    facts = {name: context.facts[name] for name in gate.reads}
    return attrs.evolve(call, facts=canonical.decode(canonical.encode(facts)))


def _rewrite(
    verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, context: DecisionContext, clock: Clock
) -> Generator[Question, Decision, None]:
    """Ask the rewriters in turn, each with a copy of the last output; validate the final output again.

    A denial ends the judging, since the rewritten output is unknown; an ask does not: a guard may still deny.
    """
    for gate in bound.rewriters:
        call = make_call(bindings, caller, bound, canonical.decode(verdict.raw), verdict.raw, context)
        if gate.applies is not None and not gate.applies(call):
            continue
        seen = _with_facts(call, gate, context) if gate.reads else call
        decision = answer(gate, clock, seen) if gate.pure else checked_answer(gate, (yield gate, seen))
        if decision.outcome == "transform":
            decision = _replace(verdict, decision)
        verdict.rewrites.append((gate, decision))
        if decision.outcome == "deny":
            _refuse(verdict, gate, decision)
            return
    if verdict.original is not None:
        if bound.takes.valid(verdict.args):
            _check_arguments_scope(verdict, bound, caller)
        else:
            _deny_violation(verdict, bound, "transform")


def _replace(verdict: Verdict, decision: Decision) -> Decision:
    """Continue with the arguments of a transform; return a refusal if they cannot be recorded."""
    try:
        raw = canonical.admit(dict(decision.args or {}))
    except Exception as problem:  # noqa: BLE001 - a mapping of a plugin's own may raise anything
        return refusal(f"answered transform with what cannot be recorded: {describe(problem)}")
    if raw != verdict.raw:
        verdict.original = verdict.original or verdict.raw
        verdict.raw, verdict.args = raw, canonical.decode(raw)
    return decision


def _conclude(
    verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, context: DecisionContext
) -> None:
    """Merge all answers (policies count only if the charter enforces them), and check the arguments for changes."""
    if verdict.hooks or verdict.policies or verdict.rewrites:
        binding = verdict.policies if bindings.enforcement == "enforce" else ()
        worst = merge(verdict.rewrites, verdict.hooks, binding)
        if worst is not None:
            _refuse(verdict, *worst)
        _check_untouched(verdict)
    if KINDS[bound.kind].needs_policy and verdict.outcome != "deny" and not _is_decided(verdict.policies, bound.kind):
        why = NO_POLICY if all(gate.loosens is None for gate, _ in verdict.policies) else NOT_LOOSENED
        verdict.deny("GATE_DENIED", why.format(bound.kind), {"rule": bound.kind})
    if verdict.outcome == "allow" and bound.tags and (tag := tag_that_asks(bound.tags, verdict.policies)):
        verdict.ask(f"its tag {tag} wants a person to decide", {"rule": tag})
    if context.approved is not None and verdict.outcome == "ask":
        _approve(verdict, bound, bindings, caller, context.approved)


def _is_decided(policies: Answers, kind: str) -> bool:
    """Return whether a policy decided about a call of a *kind* that needs one.

    An advisory answer decides nothing, and neither does a policy of a pack that may not loosen the kind.
    """
    return any(
        decision.outcome != "advisory" and (gate.loosens is None or kind in gate.loosens) for gate, decision in policies
    )


def _approve(verdict: Verdict, bound: BoundAbility, bindings: Bindings, caller: Caller, approved: ApprovedCall) -> None:
    """Allow an ask that a person approved: the same call, charter, asking gate and reason."""
    call = call_digest(bound.id, verdict.raw, caller.principal.id)
    by = None if verdict.by is None else dict(verdict.by)
    if approved == ApprovedCall(call, bindings.charter.digest, recordable(verdict.reason), by):
        verdict.outcome, verdict.code, verdict.reason, verdict.by = "allow", "", "", None


def _check_untouched(verdict: Verdict) -> None:
    """Deny the call if a guard changed the shared copy of the arguments: later guards saw another call."""
    args = canonical.decode(verdict.raw)
    if args != verdict.args and verdict.outcome != "deny":
        names = ", ".join(f"{gate.kind} {gate.id!r}" for gate, _ in (*verdict.hooks, *verdict.policies))
        why = "only a hook that declares `rewrites` may, by answering transform"
        verdict.deny("GATE_DENIED", f"the arguments were changed while they were judged by {names}; {why}")
    verdict.args = args


def _refuse(verdict: Verdict, gate: BoundGate, decision: Decision) -> None:
    reason = recordable(decision.reason) or f"{gate.kind} {gate.id!r} answered {decision.outcome}"
    if decision.outcome == "ask":
        verdict.ask(reason, decision_source(gate, decision))
    else:
        verdict.deny("GATE_DENIED", reason, decision_source(gate, decision))


def _deny_violation(verdict: Verdict, bound: BoundAbility, subject: str) -> Verdict:
    violations = bound.takes.violations(verdict.args) or (Violation("$", "arguments are an object"),)
    verdict.violations, verdict.subject = violations, subject
    return verdict.deny("SCHEMA_VIOLATION", f"{violations[0].path}: {violations[0].message}")
