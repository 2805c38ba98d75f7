"""Derives the decisions of recorded calls again, under any charter; pure: only pure gates are asked.

What-if compares two charters this way, and verification checks that a decision follows from the record. The answer of a
gate that is not pure comes from the record, if the same gate was asked about the same arguments; else the verdict may
be undetermined.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from deedbook.contract import ALLOW, Call, Decision, Object, Principal
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller, Scope
from deedbook.policy.callers import (
    LOCAL,
    OVER,
    as_role,
    intersect_allowed,
    narrow_caller,
    requested_limits,
    restore_caller,
    session_caller,
    skill_scope,
    under_call,
    under_flow,
    with_skill,
)
from deedbook.policy.gates import BoundGate, may_allow_tag
from deedbook.policy.judge import DecisionContext, Verdict, judge

from .calls import read_calls
from .positions import CallPosition
from .recorded import UNKNOWN_CALLER, RecordedCall, RecordedSubject

Change: TypeAlias = Literal["same", "allowed", "denied", "missing", "asks", "rewritten", "undetermined"]

LATE: Final = "a gate answered late, which depends on the machine"
MUTATED: Final = "a gate that is not pure changed the arguments"
LATE_PREFIX: Final = "answered after its limit of "


@attrs.frozen(eq=False)
class RejudgedCall:
    """A recorded call and its decision now: *change* compares the two.

    ``allowed``: it is no longer refused; ``denied``, ``asks``: it is now; ``missing``: the ability no longer exists;
    ``rewritten``: it is decided as before, with other arguments; ``undetermined``: *why* says what is unknown.
    """

    call: RecordedCall
    verdict: Verdict | None
    change: Change
    why: str = ""


class DecisionInput(NamedTuple):
    """The input of a decision: the charter, the caller, the call, and the decision context."""

    bindings: Bindings
    caller: Caller
    ability: str
    args: Any
    raw: bytes
    when: DecisionContext


@attrs.frozen(eq=False)
class RederivedDecision:
    """A decision derived again; *unknown* are the gates whose answers are unknown."""

    verdict: Verdict
    unknown: Sequence[BoundGate] = ()
    binding: bool = True

    @property
    def undetermined_gate(self) -> BoundGate | None:
        """The gate whose unknown answer the outcome depends on, if any: a rewriter always, others if none denies.

        A policy that does not bind counts if it may decide for a tag that no person is asked.
        """
        bound = self.verdict.bound
        for gate in self.unknown:
            binds = self.binding or gate.kind != "policy" or (bound is not None and may_allow_tag(gate, bound.tags))
            if gate.rewrites or (self.verdict.outcome != "deny" and binds):
                return gate
        return None


Answer: TypeAlias = Callable[[BoundGate, Call], Decision | None]
"""Returns the answer of a gate that is not pure about a call; ``None`` if it is unknown."""


def rederive(decision_input: DecisionInput, answer: Answer) -> RederivedDecision:
    """Derive a decision and ask only pure gates; a gate with an unknown answer counts as allowing."""
    judging = judge(*decision_input, _frozen_clock)
    try:
        gate, call = next(judging)
    except StopIteration as done:
        return RederivedDecision(done.value)
    unknown: list[BoundGate] = []
    try:
        while True:
            known = answer(gate, call)
            if known is None:
                unknown.append(gate)
            gate, call = judging.send(ALLOW if known is None else known)
    except StopIteration as done:
        return RederivedDecision(done.value, unknown, binding=decision_input.bindings.enforcement == "enforce")


class Rejudger:
    """Judges recorded calls under *bindings*, one after the other."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self._callers: dict[tuple[str, CallPosition], Caller] = {}
        self._session = ""

    def __call__(self, call: RecordedCall) -> RejudgedCall:
        """Judge *call* again."""
        if call.why:
            return RejudgedCall(call, None, "undetermined", call.why)
        rederived = self.rederive(call, lambda gate, seen: find_recorded_answer(call, gate, seen))
        return (
            RejudgedCall(call, None, "undetermined", UNKNOWN_CALLER)
            if rederived is None
            else self.compare(call, rederived)
        )

    def rederive(self, call: RecordedCall, answer: Answer) -> RederivedDecision | None:
        """Derive the decision of *call*, which has no *why*; ``None`` without a caller.

        *answer* answers for gates that are not pure.
        """
        caller = self._find_caller(call)
        if caller is None:
            return None
        when = DecisionContext(call.ts, call.session.id, call.facts)
        return rederive(DecisionInput(self.bindings, caller, call.ability, call.args, call.raw, when), answer)

    def compare(self, call: RecordedCall, rederived: RederivedDecision) -> RejudgedCall:
        """Compare the recorded decision of *call* with the one that was derived again."""
        return compare(call, rederived, self.bindings.charter.document.get("plugins", {}))

    def get_caller(self, call: RecordedCall | RecordedSubject) -> Caller | None:
        """Return the caller under this charter; ``None`` if the caller is unknown."""
        return self._find_caller(call) if not call.why else None

    # --- callers -----------------------------------------------------------------------------------------------------

    def _find_caller(self, call: RecordedCall | RecordedSubject) -> Caller | None:
        if call.is_over:
            return Caller(principal=Principal(call.principal, "run"), actor="tool", scope=OVER)
        if self._session != call.session.id:
            self._session = call.session.id
            self._callers.clear()
        assert call.position is not None
        key = (call.principal, call.position)
        found = self._callers.get(key)
        if found is None:
            made = self._build_caller(call, call.position)
            if made.principal.id != call.principal:
                return None
            found = self._callers[key] = made
        return found

    def _build_caller(self, call: RecordedCall | RecordedSubject, position: CallPosition) -> Caller:
        if position.parent is None:
            return session_caller(self._apply_roles(call, call.session.principal), self.bindings, call.session.mode)
        if position.request is not None:
            return self._build_requester(call, position.request)
        if position.kind in ("role", "branch"):
            return self._build_inner(call, position)
        above = self._build_caller(call, position.parent)
        if position.kind == "skill":
            return with_skill(above, position.name)
        if position.kind == "flow":
            return under_flow(above, self.bindings, position.name)
        bound = self.bindings.abilities.get(position.name)
        return under_call(above, bound.uses if bound else _build_empty_scope(position.name))

    def _build_inner(self, call: RecordedCall | RecordedSubject, position: CallPosition) -> Caller:
        """Return the caller of a role or a branch: that of its flow, narrowed by the branches around it."""
        role, allowed, skill, flow, limits = position.name, position.allowed, position.skill, position, position.limits
        while flow.kind in ("role", "branch") and flow.parent is not None:
            flow = flow.parent
            allowed, skill = intersect_allowed(flow.allowed, allowed), skill or flow.skill
            limits = (*flow.limits, *limits)
        above = self._build_caller(call, flow.parent or flow)
        above = above if skill is None else with_skill(above, skill)
        inner = as_role(above, role, self.bindings) if role else under_flow(above, self.bindings, flow.name)
        return attrs.evolve(narrow_caller(inner, allowed), limits=(*inner.limits, *limits))

    def _build_requester(self, call: RecordedCall | RecordedSubject, request: Object) -> Caller:
        """Return the caller of a call that another session parked."""
        of, scope = request["principal"], request["scope"]
        who = Principal(of["id"], of["via"], frozenset(of["roles"]), of["on_behalf_of"])
        names, models = (None if part is None else frozenset(part) for part in (scope["names"], scope["models"]))
        bound = Scope(scope["why"], names, models)
        before = skill_scope(self.bindings.skills.get(request["skill"] or ""), self.bindings, request["role"])
        caller = Caller(
            principal=self._apply_roles(call, who),
            actor=request["actor"],
            scope=before if before.why == bound.why else bound,
            role=request["role"],
            skill=request["skill"],
            mode=request.get("mode", "interactive"),
            limits=requested_limits(request),
        )
        return restore_caller(caller, self.bindings)

    def _apply_roles(self, call: RecordedCall | RecordedSubject, principal: Principal) -> Principal:
        """Return a principal, with the roles of this charter if it is another one than the session's."""
        declared = self.bindings.charter.document.get("principals", {}).get(principal.id)
        # a session of LOCAL is begun without a look at its declaration
        known = principal.id == LOCAL.id or call.session.charter == self.bindings.charter.digest
        if declared is None or known:
            return principal
        return Principal(
            principal.id, declared["via"] or principal.via, frozenset(declared["roles"]), declared["on_behalf_of"]
        )


def rejudge(ledger: Path, bindings: Bindings) -> Iterator[RejudgedCall]:
    """Judge every call of a session's file *ledger* again, in order; memory does not grow with it.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that is not of format 1.1, `FileNotFoundError`.
    """
    judging = Rejudger(bindings)
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        yield from map(judging, read_calls(file, str(ledger), folder, bindings.reads))


# --- comparing ------------------------------------------------------------------------------------------------------


def compare(call: RecordedCall, rederived: RederivedDecision, plugins: Container[str]) -> RejudgedCall:
    """Compare the decision now with the recorded one; only a feature among the charter's *plugins* may deny."""
    verdict, open_ = rederived.verdict, rederived.undetermined_gate if rederived.unknown else None
    was, now = call.outcome, verdict.outcome
    if open_ is not None:
        return RejudgedCall(call, verdict, "undetermined", describe_unknown(open_))
    if was == now or (call.is_prevented_by(plugins) and now != "deny"):
        rewritten = now != "deny" and verdict.raw != call.final
        return RejudgedCall(call, verdict, "rewritten" if rewritten else "same")
    excuse = _find_excuse(call, verdict) if was == "deny" else ""
    if excuse:
        return RejudgedCall(call, verdict, "undetermined", excuse)
    if verdict.code == "TOOL_NOT_FOUND":
        return RejudgedCall(call, verdict, "missing")
    changes: dict[str, Change] = {"allow": "allowed", "ask": "asks", "deny": "denied"}
    return RejudgedCall(call, verdict, changes[now])


def _find_excuse(call: RecordedCall, verdict: Verdict) -> str:
    """Return why a refusal that is gone may still be right: it depended on something that no record can repeat."""
    asked = [*verdict.rewrites, *verdict.hooks, *verdict.policies]
    here = {gate.digest for gate, _ in asked}
    for line in read_answers(call):
        if line["digest"] in here and str(line.get("reason", "")).startswith(LATE_PREFIX):
            return LATE
    if call.code == "GATE_DENIED" and call.by is None and any(not gate.pure for gate, _ in asked):
        return MUTATED
    return ""


def find_recorded_answer(call: RecordedCall, gate: BoundGate, now: Call) -> Decision | None:
    """Return the recorded answer of *gate*, if the same gate was asked about the same arguments."""
    lines = read_answers(call)
    at = next((at for at, line in enumerate(lines) if line["digest"] == gate.digest), None)
    if at is None:
        return None
    transforms = [number for number, line in enumerate(lines) if line["decision"] == "transform"]
    before = sum(number < at for number in transforms)
    seen = call.raw if before == 0 else call.final if before == len(transforms) else None
    if seen != now.raw:
        return None
    line, args = lines[at], None
    if line["decision"] == "transform":
        if before != len(transforms) - 1:
            return None
        args = call.read_gate_records()[0].get("output", call.args)
    signals = line.get("signals") or ({"rule": line["rule"]} if "rule" in line else {})
    return Decision(line["decision"], line.get("reason", ""), args, signals)


def read_answers(call: RecordedCall) -> list[Object]:
    """Return the recorded answers of hooks and then policies, as far as they can be read."""
    try:
        return [
            line for record in call.read_gate_records() for line in record.get("asked", ()) if isinstance(line, dict)
        ]
    except (DeedbookError, OSError):
        return []


def describe_unknown(gate: BoundGate) -> str:
    """Return the message that the answer of *gate* is unknown."""
    return f"{gate.kind} {gate.id} is not pure, and no answer of it is recorded for this"


def _build_empty_scope(ability: str) -> Scope:
    return Scope(f"what {ability} declares to use, which is not declared itself", frozenset(), frozenset())


def _frozen_clock() -> float:
    """Return 0: a repeated judgement is never late."""
    return 0.0
