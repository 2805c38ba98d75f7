"""Attacks on approvals: used again, used for another call, signed with another key, given by the one who asks.

The private keys of the workspace's approvers are not used: in the copy, every approver has a key that was made for it.
"""

from collections.abc import Mapping
from typing import Any, Final

from deedbook.call.queue import open_queue
from deedbook.format import canonical
from deedbook.format.events import Entry, label, new_id
from deedbook.format.notes import SigningKey
from deedbook.policy.requests import sign_answer

from .attacks import Attack, NotApplicable, expect
from .candidates import JudgedCall
from .scratch import PERSON, approvers_of
from .target import Attempt, InertKernel, Target


def _no_approval(target: Target) -> str:
    return target.why_not(lambda: _find_asked_call(target))


def _find_asked_call(target: Target, *, by_approver: bool = False) -> tuple[JudgedCall, str]:
    """Return a call that waits for a person, and an approver who may answer; raises `NotApplicable`."""
    approvers = approvers_of(target.workspace)
    if not target.asked_calls:
        raise NotApplicable(
            "nothing here asks a person: no call that could be built needs an approval; "
            "a policy with then: ask, or the tag approval-gate on an ability, makes this apply"
        )
    if not approvers:
        raise NotApplicable(
            "no keys are set, so approvals are not signed and nothing can be approved; deedbook keys new NAME makes one"
        )
    for call in target.asked_calls:
        who = call.principal if by_approver else next((each for each in approvers if each != call.principal), "")
        if who in approvers and target.base.attempt(call.ability, call.args, call.principal).code == "NEEDS_HUMAN":
            return call, who
    raise NotApplicable("no call waits for another person: policies are only observed, or the only approver asks")


class _Approvals:
    """A copy of its own, so that no attack leaves an approval to another."""

    def __init__(self, target: Target) -> None:
        self._scratch = target.variant()
        self._opened: InertKernel = target.open(self._scratch)

    def make(self, call: JudgedCall) -> Attempt:
        """Make a call."""
        return self._opened.attempt(call.ability, call.args, call.principal)

    def request(self, call: JudgedCall) -> Mapping[str, Any]:
        """Make a call, and return its request to a person."""
        made = self.make(call)
        expect(made.is_refused and made.code == "NEEDS_HUMAN", f"{call} was not left to a person: {made}")
        name = getattr(made.result, "details", {}).get("approval", "")
        with open_queue(self._scratch.state) as waiting:
            request: Mapping[str, Any] = waiting.request(waiting.find(str(name)))
        return request

    def answer(self, request: Mapping[str, Any], who: str, key: SigningKey | None = None) -> None:
        """Write a signed approval into the workspace ledger; only the door checks the approver."""
        ledger = self._opened.kernel.ledger
        with open_queue(self._scratch.state) as waiting:
            asked = waiting.find(request["approval"]).requested.span
        said = {
            "answer": "approve", "approver": who, "ledger": ledger.session_id, "at": ledger.now(),
            "nonce": new_id(), "note": "",
        }  # fmt: skip
        payload = canonical.encode_payload(sign_answer(request, key or self._scratch.person(), said))
        ledger.append([Entry(label("approval.answered", "user", who), ledger.span(), asked, payload)], durable=True)


def _replay(target: Target) -> str:
    (call, who), copy = _find_asked_call(target), _Approvals(target)
    copy.answer(copy.request(call), who)
    first, second = copy.make(call), copy.make(call)
    expect(first.begun == 1, f"{call} was not performed although {who} approved it: {first}")
    expect(second.is_refused, f"one approval was used twice for {call}: {second}")
    return f"{call} was performed once with an approval; then: {second}"


def _use_for_another(target: Target) -> str:
    call, who = _find_asked_call(target)
    others = (each for each in target.asked_calls if each.ability == call.ability and each.principal == call.principal)
    other = next((each for each in others if each.args != call.args), None)
    if other is None:
        raise NotApplicable(f"no second call of {call.ability} that waits for a person could be built")
    copy = _Approvals(target)
    copy.answer(copy.request(call), who)
    made = copy.make(other)
    expect(made.is_refused, f"the approval of {call} was used for {other}: {made}")
    return f"with an approval of {call}, {other}: {made}"


def _forge(target: Target) -> str:
    (call, who), copy = _find_asked_call(target), _Approvals(target)
    copy.answer(copy.request(call), who, SigningKey.generate(PERSON))
    made = copy.make(call)
    expect(made.is_refused, f"an answer that {who} has not signed was used for {call}: {made}")
    return f"with an answer that {who} has not signed: {made}"


def _no_own(target: Target) -> str:
    return _no_approval(target) or target.why_not(lambda: _find_asked_call(target, by_approver=True))


def _approve_own(target: Target) -> str:
    (call, who), copy = _find_asked_call(target, by_approver=True), _Approvals(target)
    copy.answer(copy.request(call), who)
    made = copy.make(call)
    expect(made.is_refused, f"{who} approved a call of {who}: {made}")
    return f"{who} asked for {call} and approved it: {made}"


ATTACKS: Final = (
    Attack(
        id="approval-replayed", promise="An approval is used once.", applies=_no_approval, run=_replay
    ),
    Attack(
        id="approval-other-arguments", promise="An approval is not valid for other arguments.",
        applies=_no_approval, run=_use_for_another,
    ),
    Attack(
        id="approval-forged", promise="An approval that the approver has not signed does not count.",
        applies=_no_approval, run=_forge,
    ),
    Attack(
        id="approval-own", promise="No person approves a call of their own.", applies=_no_own, run=_approve_own
    ),
)  # fmt: skip
