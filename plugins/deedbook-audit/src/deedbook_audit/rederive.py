"""Judges recorded calls again, under any charter; pure: nothing is called, and only gates that are pure are asked.

What-if compares two charters so, and verification whether a decision follows from what is recorded. A gate that is not
pure answers from the record, where it was asked about the same arguments and is the same gate; else the verdict may be
undetermined.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from deedbook.contract import ALLOW, Call, Decision, Object, Principal
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller, Scope
from deedbook.policy.callers import OVER, as_role, session_caller, skill_scope, under_call, under_flow, with_skill
from deedbook.policy.gates import BoundGate, may_allow_tag
from deedbook.policy.judge import DecisionContext, Verdict, judge

from .calls import read_calls
from .recorded import NOBODY, Recorded
from .standings import Standing

Change: TypeAlias = Literal["same", "allowed", "denied", "missing", "asks", "rewritten", "undetermined"]

LATE: Final = "a gate answered late, which depends on the machine"
MUTATED: Final = "a gate that is not pure changed the arguments"
SAID_LATE: Final = "answered after its limit of "


@attrs.frozen(eq=False)
class Rejudged:
    """A recorded call and what is decided about it now: *change* compares the two.

    ``allowed``: it is no longer refused; ``denied``, ``asks``: it is now; ``missing``: there is no such ability any
    more; ``rewritten``: it goes on as before, with other arguments; ``undetermined``: *why* nobody can say.
    """

    call: Recorded
    verdict: Verdict | None
    change: Change
    why: str = ""


class Asking(NamedTuple):
    """Everything that a decision is made from: the charter, who asks for what, and under which circumstances."""

    bindings: Bindings
    caller: Caller
    ability: str
    args: Any
    raw: bytes
    when: DecisionContext


@attrs.frozen(eq=False)
class Settled:
    """What is decided, as far as it can be told: *unknown* are the gates that nobody answered for."""

    verdict: Verdict
    unknown: Sequence[BoundGate] = ()
    binding: bool = True

    @property
    def undetermined(self) -> BoundGate | None:
        """The gate on whose answer the outcome depends, if there is one: a rewriter always, others if none denies.

        A policy that does not bind counts where it may decide for a tag that no person is asked.
        """
        bound = self.verdict.bound
        for gate in self.unknown:
            binds = self.binding or gate.kind != "policy" or (bound is not None and may_allow_tag(gate, bound.tags))
            if gate.rewrites or (self.verdict.outcome != "deny" and binds):
                return gate
        return None


Answer: TypeAlias = Callable[[BoundGate, Call], Decision | None]
"""What a gate that is not pure answered about a call; ``None`` if nobody knows."""


def settle(asking: Asking, answer: Answer) -> Settled:
    """Decide without asking anybody who is not pure; who is unknown is taken to allow, so that the rest is seen."""
    judging = judge(*asking, _still)
    try:
        gate, call = next(judging)
    except StopIteration as done:
        return Settled(done.value)
    unknown: list[BoundGate] = []
    try:
        while True:
            known = answer(gate, call)
            if known is None:
                unknown.append(gate)
            gate, call = judging.send(ALLOW if known is None else known)
    except StopIteration as done:
        return Settled(done.value, unknown, binding=asking.bindings.enforcement == "enforce")


class Rejudge:
    """Judges recorded calls under *bindings*, one after the other."""

    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self._callers: dict[tuple[str, Standing], Caller] = {}
        self._session = ""

    def __call__(self, call: Recorded) -> Rejudged:
        """Judge *call* again."""
        if call.why:
            return Rejudged(call, None, "undetermined", call.why)
        settled = self.settle(call, lambda gate, seen: recorded_answer(call, gate, seen))
        return Rejudged(call, None, "undetermined", NOBODY) if settled is None else compared(call, settled)

    def settle(self, call: Recorded, answer: Answer) -> Settled | None:
        """Decide *call*, which has no *why*, where gates that are not pure *answer*; ``None`` if nobody asked."""
        caller = self._caller(call)
        if caller is None:
            return None
        when = DecisionContext(call.ts, call.told.id, call.facts)
        return settle(Asking(self.bindings, caller, call.ability, call.args, call.raw, when), answer)

    def caller(self, call: Recorded) -> Caller | None:
        """Return who asked, as this charter has them; ``None`` if nobody can tell."""
        return self._caller(call) if not call.why else None

    # --- who asked ----------------------------------------------------------------------------------------------------

    def _caller(self, call: Recorded) -> Caller | None:
        if call.over:
            return Caller(principal=Principal(call.principal, "run"), actor="tool", scope=OVER)
        if self._session != call.told.id:
            self._session = call.told.id
            self._callers.clear()
        assert call.standing is not None
        key = (call.principal, call.standing)
        found = self._callers.get(key)
        if found is None:
            made = self._standing(call, call.standing)
            if made.principal.id != call.principal:
                return None
            found = self._callers[key] = made
        return found

    def _standing(self, call: Recorded, standing: Standing) -> Caller:
        if standing.above is None:
            return session_caller(self._principal(call, call.told.principal), self.bindings)
        if standing.said is not None:
            return self._requester(call, standing.said)
        if standing.way == "role" and standing.above.above is not None:
            return as_role(self._standing(call, standing.above.above), standing.name, self.bindings)
        above = self._standing(call, standing.above)
        if standing.way == "skill":
            return with_skill(above, standing.name)
        if standing.way == "flow":
            return under_flow(above, self.bindings)
        bound = self.bindings.abilities.get(standing.name)
        return under_call(above, bound.uses if bound else _gone(standing.name))

    def _requester(self, call: Recorded, said: Object) -> Caller:
        """Return who asked for a call that another session parked."""
        of, scope = said["principal"], said["scope"]
        who = Principal(of["id"], of["via"], frozenset(of["roles"]), of["on_behalf_of"])
        names, models = (None if part is None else frozenset(part) for part in (scope["names"], scope["models"]))
        bound = Scope(scope["why"], names, models)
        before = skill_scope(self.bindings.skills.get(said["skill"] or ""), self.bindings, said["role"])
        return Caller(
            principal=self._principal(call, who),
            actor=said["actor"],
            scope=before if before.why == bound.why else bound,
            role=said["role"],
            skill=said["skill"],
        )

    def _principal(self, call: Recorded, told: Principal) -> Principal:
        """Return a principal: with the roles that this charter gives them, if it is another one."""
        declared = self.bindings.charter.document.get("principals", {}).get(told.id)
        if declared is None or call.told.charter == self.bindings.charter.digest:
            return told
        return Principal(told.id, declared["via"] or told.via, frozenset(declared["roles"]), declared["on_behalf_of"])


def rejudge(ledger: Path, bindings: Bindings) -> Iterator[Rejudged]:
    """Judge every call of a session's file *ledger* again, in its order; memory does not grow with it.

    Raises `LedgerError` (``LEDGER_UNSOUND``) for what is no line of format 1.1, `FileNotFoundError`.
    """
    judging = Rejudge(bindings)
    with Folder.at(ledger.parent) as folder, folder.open(ledger.name) as file:
        yield from map(judging, read_calls(file, str(ledger), folder, bindings.reads))


# --- comparing --------------------------------------------------------------------------------------------------------


def compared(call: Recorded, settled: Settled) -> Rejudged:
    """Compare what is decided now with what was."""
    verdict, open_ = settled.verdict, settled.undetermined if settled.unknown else None
    was, now = call.outcome, verdict.outcome
    if open_ is not None:
        return Rejudged(call, verdict, "undetermined", unknown(open_))
    if was == now:
        rewritten = now != "deny" and verdict.raw != call.final
        return Rejudged(call, verdict, "rewritten" if rewritten else "same")
    excuse = _excuse(call, verdict) if was == "deny" else ""
    if excuse:
        return Rejudged(call, verdict, "undetermined", excuse)
    if verdict.code == "TOOL_NOT_FOUND":
        return Rejudged(call, verdict, "missing")
    changes: dict[str, Change] = {"allow": "allowed", "ask": "asks", "deny": "denied"}
    return Rejudged(call, verdict, changes[now])


def _excuse(call: Recorded, verdict: Verdict) -> str:
    """Say why a refusal that is none now may still be one: it rested on what no record can repeat."""
    asked = [*verdict.rewrites, *verdict.hooks, *verdict.policies]
    here = {gate.digest for gate, _ in asked}
    for line in answers(call):
        if line["digest"] in here and str(line.get("reason", "")).startswith(SAID_LATE):
            return LATE
    if call.code == "GATE_DENIED" and call.by is None and any(not gate.pure for gate, _ in asked):
        return MUTATED
    return ""


def recorded_answer(call: Recorded, gate: BoundGate, asked: Call) -> Decision | None:
    """Return what *gate* answered then, if it is the same gate and was asked about the same arguments."""
    lines = answers(call)
    at = next((at for at, line in enumerate(lines) if line["digest"] == gate.digest), None)
    if at is None:
        return None
    transforms = [number for number, line in enumerate(lines) if line["decision"] == "transform"]
    before = sum(number < at for number in transforms)
    seen = call.raw if before == 0 else call.final if before == len(transforms) else None
    if seen != asked.raw:
        return None
    line, args = lines[at], None
    if line["decision"] == "transform":
        if before != len(transforms) - 1:
            return None
        args = call.minutes()[0].get("output", call.args)
    signals = line.get("signals") or ({"rule": line["rule"]} if "rule" in line else {})
    return Decision(line["decision"], line.get("reason", ""), args, signals)


def answers(call: Recorded) -> list[Object]:
    """Return what hooks and then policies answered, as far as it is recorded and can be read."""
    try:
        return [line for said in call.minutes() for line in said.get("asked", ()) if isinstance(line, dict)]
    except (DeedbookError, OSError):
        return []


def unknown(gate: BoundGate) -> str:
    """Say that nobody knows what *gate* would answer."""
    return f"{gate.kind} {gate.id} is not pure, and no answer of it is recorded for this"


def _gone(ability: str) -> Scope:
    return Scope(f"what {ability} declares to use, which is not declared itself", frozenset(), frozenset())


def _still() -> float:
    """Stand still: what is judged again is never late."""
    return 0.0
