"""The Hook Runner for the events of a session; the door asks its own gates.

One ``hook.fired`` event per life-cycle event lists everyone who was asked. Rewriters come first, each on the last
output; the conservative answer wins; whoever fails, answers late or answers nothing on a blocking event denies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from deedbook.contract import Call, Decision, Object, Principal
from deedbook.contract.lifecycle import EVENTS, LifeEvent
from deedbook.format import canonical
from deedbook.format.errors import Err, describe, fault, recordable
from deedbook.format.events import Entry, label
from deedbook.ledger.ledger import Ledger
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import BoundAbility
from deedbook.policy.gates import (
    Answers,
    BoundGate,
    Clock,
    answer,
    decision_payload,
    decision_source,
    merge,
    refusal,
    signals_of,
    source_place,
)


@attrs.frozen
class Fired:
    """What a life-cycle event came to: nobody refused it, or *refusal* says why.

    *left* is what it was about, as rewriters left it; *signals* what hooks said beside, merged for the caller:
    ``{name: [{"hook": id, "value": …}, …]}``. *said* are the reasons of those who had nothing against it, *by* is who
    refused it.
    """

    refusal: str | None = None
    left: Object = attrs.field(factory=dict)
    signals: Object = attrs.field(factory=dict)
    said: tuple[str, ...] = ()
    by: Object | None = None

    @property
    def prompt(self) -> str:
        """The prompt that rewriters left."""
        prompt: str = self.left["prompt"]
        return prompt


@attrs.frozen(kw_only=True)
class _Moment:
    """One firing: the event, on whose account, under which span, and what it is about (*subject*).

    *arguments* makes what its hooks are asked with, of the recorded time, the facts of each and what is left of the
    subject; *whole*: a transform may hold nothing but the members of the subject.
    """

    event: LifeEvent
    principal: Principal
    cause: str
    arguments: Callable[[str, Object, Object], tuple[Any, ...]]
    subject: Object = attrs.field(factory=dict)
    whole: bool = True


class HookRunner:
    """Asks the hooks of session events and records the answers. *facts* reads what they declare."""

    def __init__(
        self, bindings: Bindings, ledger: Ledger, facts: Callable[[frozenset[str]], Object], clock: Clock
    ) -> None:
        self._hooks = bindings.hooks
        self._ledger = ledger
        self._facts = facts
        self._clock = clock

    def session_start(self, principal: Principal, cause: str) -> Fired:
        """Ask whether the session may begin."""
        session = self._ledger.session_id
        return self._fire(
            _Moment(
                event=EVENTS["SessionStart"],
                principal=principal,
                cause=cause,
                arguments=lambda now, facts, _: (principal, session, now, facts),
            )
        )

    def user_prompt_submit(self, prompt: str, principal: Principal, cause: str) -> Fired:
        """Ask what becomes of a prompt, before it is recorded."""
        session = self._ledger.session_id
        return self._fire(
            _Moment(
                event=EVENTS["UserPromptSubmit"],
                principal=principal,
                cause=cause,
                arguments=lambda now, facts, left: (left["prompt"], principal, session, now, facts),
                subject={"prompt": prompt},
            )
        )

    def skill_start(self, skill: str, prompt: str, principal: Principal, cause: str) -> Fired:
        """Ask whether *skill* may be used for *prompt*, and with which words."""
        session = self._ledger.session_id
        return self._fire(
            _Moment(
                event=EVENTS["SkillStart"],
                principal=principal,
                cause=cause,
                arguments=lambda now, _, left: (skill, left["prompt"], principal, session, now),
                subject={"prompt": prompt},
            )
        )

    def pre_ability_create(self, bound: BoundAbility, call: Call, cause: str) -> Fired:
        """Ask whether a task for *call*, a use of *bound*, may be made; nothing is run."""
        gates = tuple(gate for gate in bound.creators if gate.holds is None or gate.holds(call))
        moment = _Moment(
            event=EVENTS["PreAbilityCreate"],
            principal=call.principal,
            cause=cause,
            arguments=lambda now, facts, _: (attrs.evolve(call, now=now, facts=facts),),
        )
        return self._ask(moment, gates, {"ability": bound.id})

    def fire(self, event: str, subject: Object, principal: Principal, cause: str) -> Fired:
        """Ask the hooks of an event that a flow fires about *subject*; raises `KeyError` for an unknown event."""
        session = self._ledger.session_id
        return self._fire(
            _Moment(
                event=EVENTS[event],
                principal=principal,
                cause=cause,
                arguments=lambda now, facts, left: (left, principal, session, now, facts),
                subject=canonical.decode(canonical.admit(dict(subject))),
                whole=False,
            )
        )

    def stop(self, principal: Principal, cause: str, *, ok: bool) -> Fired:
        """Ask whether the loop may go on; a refusal means that it stops now."""
        return self._end("Stop", principal, cause, ok=ok)

    def session_stop(self, principal: Principal, cause: str, *, ok: bool) -> None:
        """Tell that the session is about to end; no answer can change that."""
        self._end("SessionStop", principal, cause, ok=ok)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _end(self, event: str, principal: Principal, cause: str, *, ok: bool) -> Fired:
        session = self._ledger.session_id
        return self._fire(
            _Moment(
                event=EVENTS[event],
                principal=principal,
                cause=cause,
                arguments=lambda now, facts, _: (session, ok, now, facts),
            )
        )

    def _fire(self, moment: _Moment) -> Fired:
        return self._ask(moment, self._hooks.get(moment.event.name, ()), {})

    def _ask(self, moment: _Moment, hooks: Sequence[BoundGate], more: Mapping[str, Any]) -> Fired:
        if not hooks:
            return Fired(left=moment.subject)
        now = self._ledger.now()
        facts = self._facts(frozenset().union(*(gate.reads for gate in hooks)))
        asked: Answers = []
        left = moment.subject
        for gate in sorted(hooks, key=lambda gate: not gate.rewrites):
            seen = _copied({name: facts[name] for name in gate.reads})
            decision = answer(gate, self._clock, *moment.arguments(now, seen, _copied(left)))
            if decision.outcome == "transform":
                decision, left = _transformed(gate, decision, left, moment)
            asked.append((gate, decision))
        self._record(moment, asked, now, {**more, **_told(facts, left, moment.subject)})
        worst = merge(asked)
        signals = signals_of(asked)
        if worst is None or not moment.event.blocking:
            said = tuple(recordable(decision.reason) for _, decision in asked if decision.reason)
            return Fired(left=left, signals=signals, said=said)
        refusal = recordable(worst[1].reason) or f"hook {worst[0].id!r} refused"
        return Fired(refusal=refusal, left=left, signals=signals, by=decision_source(*worst))

    def _record(self, moment: _Moment, asked: Answers, now: str, more: Mapping[str, Any]) -> None:
        payload = decision_payload(asked, event=moment.event.name, **more)
        kind = label("hook.fired", "policy", moment.principal.id)
        self._ledger.append([Entry(kind, self._ledger.span(), moment.cause, payload)], ts=now)


def _copied(value: Object) -> Any:
    """Return a copy of a hook's own: what is recorded stays as it was."""
    return canonical.decode(canonical.encode(dict(value)))


def _told(facts: Object, left: Object, subject: Object) -> dict[str, Any]:
    """Return what a record says of a firing beside its answers."""
    told: dict[str, Any] = {"facts": dict(facts)} if facts else {}
    return told if left == subject else told | {"output": dict(left)}


def _transformed(gate: BoundGate, decision: Decision, left: Object, moment: _Moment) -> tuple[Decision, Object]:
    """Return the decision and what it leaves; a transform must come from a rewriter and hold what the event is about.

    That is a prompt and nothing else, or for what a flow fires at least the members that its subject has to have.
    """
    if not gate.rewrites:
        return refusal(f"answered transform; only a rewriter may, with {_wanted(moment)}"), left
    try:
        made: Object = canonical.decode(canonical.admit(dict(decision.args or {})))
    except Exception as problem:  # noqa: BLE001 - a mapping of a plugin's own may raise anything
        return refusal(f"answered transform with {describe(problem)}"), left
    fits = set(made) == set(moment.subject) and type(made["prompt"]) is str if moment.whole else _holds(made, moment)
    if not fits:
        return refusal(f"answered transform; only a rewriter may, with {_wanted(moment)}"), left
    return decision, made


def _holds(made: Object, moment: _Moment) -> bool:
    return moment.event.subject <= made.keys()


def _wanted(moment: _Moment) -> str:
    return "{'prompt': text}" if moment.whole else f"the subject, which has {', '.join(sorted(moment.event.subject))}"


def refused(code: str, fired: Fired) -> Err:
    """Return the error of a hook's refusal."""
    assert fired.refusal is not None
    return Err(fault(code, fired.refusal, place=source_place(fired.by)))
