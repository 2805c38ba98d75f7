"""The hook runner for the events of a session; the door asks its own gates.

One ``hook.fired`` event per life-cycle event lists every hook that was asked. Rewriters come first, each with the last
output; the strictest answer wins; on a blocking event, a hook that fails, is late or returns nothing denies.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

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

_Arguments: TypeAlias = Callable[[str, Object, Object], tuple[Any, ...]]


@attrs.frozen
class HookResult:
    """The result of a life-cycle event: *refusal* is the reason if a hook refused.

    *subject* is the event's subject after rewriters; *signals* are those of hooks, merged for the caller: ``{name:
    [{"hook": id, "value": …}, …]}``. *reasons* are those of allowing hooks, *by* is the refusing hook.
    """

    refusal: str | None = None
    subject: Object = attrs.field(factory=dict)
    signals: Object = attrs.field(factory=dict)
    reasons: tuple[str, ...] = ()
    by: Object | None = None

    @property
    def prompt(self) -> str:
        """The prompt that rewriters left."""
        prompt: str = self.subject["prompt"]
        return prompt


@attrs.frozen(kw_only=True)
class _Moment:
    """One firing: the event, its principal, its parent span, and its *subject*.

    *arguments* builds the arguments of a hook from the recorded time, its facts and the current subject; *whole*: a
    transform may contain only the members of the subject.
    """

    event: LifeEvent
    principal: Principal
    cause: str
    arguments: _Arguments
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

    def session_start(self, principal: Principal, cause: str) -> HookResult:
        """Ask whether the session may begin."""
        session = self._ledger.session_id
        return self._fire("SessionStart", principal, cause, lambda now, facts, _: (principal, session, now, facts))

    def user_prompt_submit(self, prompt: str, principal: Principal, cause: str) -> HookResult:
        """Ask the hooks about a prompt, before it is recorded."""
        session = self._ledger.session_id
        return self._fire(
            "UserPromptSubmit",
            principal,
            cause,
            lambda now, facts, left: (left["prompt"], principal, session, now, facts),
            subject={"prompt": prompt},
        )

    def skill_start(self, skill: str, prompt: str, principal: Principal, cause: str) -> HookResult:
        """Ask whether *skill* may be used for *prompt*, and with which text."""
        session = self._ledger.session_id
        return self._fire(
            "SkillStart",
            principal,
            cause,
            lambda now, _, left: (skill, left["prompt"], principal, session, now),
            subject={"prompt": prompt},
        )

    def pre_ability_create(self, bound: BoundAbility, call: Call, cause: str) -> HookResult:
        """Ask whether a task for *call*, a use of *bound*, may be made; nothing is run."""
        gates = tuple(gate for gate in bound.creators if gate.applies is None or gate.applies(call))
        moment = _Moment(
            event=EVENTS["PreAbilityCreate"],
            principal=call.principal,
            cause=cause,
            arguments=lambda now, facts, _: (attrs.evolve(call, now=now, facts=facts),),
        )
        return self._ask(moment, gates, {"ability": bound.id})

    def fire(self, event: str, subject: Object, principal: Principal, cause: str) -> HookResult:
        """Ask the hooks of an event that a flow fires about *subject*; raises `KeyError` for an unknown event."""
        session = self._ledger.session_id
        return self._fire(
            event,
            principal,
            cause,
            lambda now, facts, left: (left, principal, session, now, facts),
            subject=canonical.decode(canonical.admit(dict(subject))),
            whole=False,
        )

    def stop(self, principal: Principal, cause: str, *, ok: bool) -> HookResult:
        """Ask whether the loop may continue; a refusal stops it now."""
        return self._end("Stop", principal, cause, ok=ok)

    def session_stop(self, principal: Principal, cause: str, *, ok: bool) -> None:
        """Notify hooks that the session is about to end; no answer can change that."""
        self._end("SessionStop", principal, cause, ok=ok)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _end(self, event: str, principal: Principal, cause: str, *, ok: bool) -> HookResult:
        session = self._ledger.session_id
        return self._fire(event, principal, cause, lambda now, facts, _: (session, ok, now, facts))

    def _fire(self, event: str, principal: Principal, cause: str, arguments: _Arguments, **more: Any) -> HookResult:
        moment = _Moment(event=EVENTS[event], principal=principal, cause=cause, arguments=arguments, **more)
        return self._ask(moment, self._hooks.get(event, ()), {})

    def _ask(self, moment: _Moment, hooks: Sequence[BoundGate], more: Mapping[str, Any]) -> HookResult:
        if not hooks:
            return HookResult(subject=moment.subject)
        now = self._ledger.now()
        facts = self._facts(frozenset().union(*(gate.reads for gate in hooks)))
        asked: Answers = []
        left = moment.subject
        for gate in sorted(hooks, key=lambda gate: not gate.rewrites):
            seen = _copy({name: facts[name] for name in gate.reads})
            decision = answer(gate, self._clock, *moment.arguments(now, seen, _copy(left)))
            if decision.outcome == "transform":
                decision, left = _apply_transform(gate, decision, left, moment)
            asked.append((gate, decision))
        self._record(moment, asked, now, {**more, **_record_extras(facts, left, moment.subject)})
        worst = merge(asked)
        signals = signals_of(asked)
        if worst is None or not moment.event.blocking:
            reasons = tuple(recordable(decision.reason) for _, decision in asked if decision.reason)
            return HookResult(subject=left, signals=signals, reasons=reasons)
        refusal = recordable(worst[1].reason) or f"hook {worst[0].id!r} refused"
        return HookResult(refusal=refusal, subject=left, signals=signals, by=decision_source(*worst))

    def _record(self, moment: _Moment, asked: Answers, now: str, more: Mapping[str, Any]) -> None:
        payload = decision_payload(asked, event=moment.event.name, **more)
        kind = label("hook.fired", "policy", moment.principal.id)
        self._ledger.append([Entry(kind, self._ledger.span(), moment.cause, payload)], ts=now)


def _copy(value: Object) -> Any:
    """Return a copy for one hook, so that the recorded value cannot change."""
    return canonical.decode(canonical.encode(dict(value)))


def _record_extras(facts: Object, left: Object, subject: Object) -> dict[str, Any]:
    """Return the members of a firing's record besides the answers."""
    members: dict[str, Any] = {"facts": dict(facts)} if facts else {}
    return members if left == subject else members | {"output": dict(left)}


def _apply_transform(gate: BoundGate, decision: Decision, left: Object, moment: _Moment) -> tuple[Decision, Object]:
    """Return the decision and the subject it leaves.

    A transform must come from a rewriter. It must be a prompt and nothing else, or contain the required members of a
    flow's subject.
    """
    if not gate.rewrites:
        return refusal(f"answered transform; only a rewriter may, with {_expected_form(moment)}"), left
    try:
        made: Object = canonical.decode(canonical.admit(dict(decision.args or {})))
    except Exception as problem:  # noqa: BLE001 - a mapping of a plugin's own may raise anything
        return refusal(f"answered transform with {describe(problem)}"), left
    fits = set(made) == set(moment.subject) and type(made["prompt"]) is str if moment.whole else _holds(made, moment)
    if not fits:
        return refusal(f"answered transform; only a rewriter may, with {_expected_form(moment)}"), left
    return decision, made


def _holds(made: Object, moment: _Moment) -> bool:
    return moment.event.subject <= made.keys()


def _expected_form(moment: _Moment) -> str:
    return "{'prompt': text}" if moment.whole else f"the subject, which has {', '.join(sorted(moment.event.subject))}"


def refusal_error(code: str, fired: HookResult) -> Err:
    """Return the error of a hook's refusal."""
    assert fired.refusal is not None
    return Err(fault(code, fired.refusal, place=source_place(fired.by)))


# --- reading back -----------------------------------------------------------------------------------------------------


def read_result(fired: Object, subject: Object) -> HookResult:
    """Return a recorded firing (the payload of ``hook.fired``) about *subject* as the hooks answered it."""
    asked, left = fired.get("asked", ()), fired.get("output", subject)
    signals = read_signals(asked)
    if EVENTS[str(fired["event"])].blocking and fired.get("decision") in ("deny", "ask"):
        hook = next((each["hook"] for each in asked if each["decision"] == fired["decision"]), "")
        return HookResult(refusal=read_refusal(fired) or f"hook {hook!r} refused", subject=left, signals=signals)
    reasons = tuple(str(each["reason"]) for each in asked if each.get("reason"))
    return HookResult(subject=left, signals=signals, reasons=reasons)


def read_refusal(fired: Object) -> str:
    """Return the reason of the strictest answer in a recorded firing."""
    decision = fired.get("decision")
    reasons = (str(each.get("reason", "")) for each in fired.get("asked", ()) if each.get("decision") == decision)
    return next(reasons, "")


def read_signals(asked: Iterable[Object]) -> Object:
    """Return the signals in recorded answers, merged as in `HookResult`."""
    signals: dict[str, list[Any]] = {}
    for each in asked:
        for name, value in each.get("signals", {}).items():
            signals.setdefault(name, []).append({"hook": each["hook"], "value": value})
    return dict(sorted(signals.items()))
