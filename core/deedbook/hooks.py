"""The Hook Runner for the events of a session; the door asks its own gates.

One ``hook.fired`` event per life-cycle event lists everyone who was asked. Rewriters come first, each on the last
output; the conservative answer wins; whoever fails, answers late or answers nothing on a blocking event denies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from . import canonical
from .bindings import Bindings
from .contracts import Decision, Object, Principal
from .errors import IntakeError, recordable
from .events import Entry, label
from .gates import Asked, BoundGate, Clock, answer, merge, minutes, refusal
from .ledger import Ledger
from .lifecycle import EVENTS


@attrs.frozen
class Fired:
    """What a life-cycle event came to: nobody refused it, or *refusal* says why; *prompt* is what rewriters left."""

    refusal: str | None = None
    prompt: str = ""


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
        return self._fire("SessionStart", principal, cause, lambda now, facts, _: (principal, session, now, facts))

    def user_prompt_submit(self, prompt: str, principal: Principal, cause: str) -> Fired:
        """Ask what becomes of a prompt, before it is recorded."""
        session = self._ledger.session_id
        return self._fire(
            "UserPromptSubmit",
            principal,
            cause,
            lambda now, facts, text: (text, principal, session, now, facts),
            prompt,
        )

    def skill_start(self, skill: str, prompt: str, principal: Principal, cause: str) -> Fired:
        """Ask whether *skill* may be used for *prompt*, and with which words."""
        session = self._ledger.session_id
        return self._fire(
            "SkillStart", principal, cause, lambda now, _, text: (skill, text, principal, session, now), prompt
        )

    def stop(self, principal: Principal, cause: str, *, ok: bool) -> Fired:
        """Ask whether the loop may go on; a refusal means that it stops now."""
        session = self._ledger.session_id
        return self._fire("Stop", principal, cause, lambda now, facts, _: (session, ok, now, facts))

    def session_stop(self, principal: Principal, cause: str, *, ok: bool) -> None:
        """Tell that the session is about to end; no answer can change that."""
        session = self._ledger.session_id
        self._fire("SessionStop", principal, cause, lambda now, facts, _: (session, ok, now, facts))

    def _fire(
        self, event: str, principal: Principal, cause: str, subject: Callable[[str, Object, str], tuple[Any, ...]],
        prompt: str = "",
    ) -> Fired:  # fmt: skip
        hooks = self._hooks.get(event, ())
        if not hooks:
            return Fired(prompt=prompt)
        now = self._ledger.now()
        facts = self._facts(frozenset().union(*(gate.reads for gate in hooks)))
        asked: Asked = []
        left = prompt
        for gate in sorted(hooks, key=lambda gate: not gate.rewrites):
            seen = canonical.decode(canonical.encode({name: facts[name] for name in gate.reads}))
            decision = answer(gate, self._clock, *subject(now, seen, left))
            if decision.outcome == "transform":
                decision, left = _transformed(gate, decision, left)
            asked.append((gate, decision))
        worst = merge(asked)
        self._record(event, asked, principal, cause, now, facts, prompt, left)
        if worst is None or not EVENTS[event].blocking:
            return Fired(prompt=left)
        return Fired(refusal=recordable(worst[1].reason) or f"hook {worst[0].id!r} refused", prompt=left)

    def _record(  # noqa: PLR0913 - what one event holds
        self,
        event: str,
        asked: Asked,
        principal: Principal,
        cause: str,
        now: str,
        facts: Object,
        prompt: str,
        left: str,
    ) -> None:
        more: dict[str, Any] = {"facts": dict(facts)} if facts else {}
        if left != prompt:
            more |= {"output": {"prompt": left}}
        payload = minutes(asked, event=event, **more)
        entry = Entry(label("hook.fired", "policy", principal.id), self._ledger.span(), cause, payload)
        self._ledger.append([entry], ts=now)


def _transformed(gate: BoundGate, decision: Decision, left: str) -> tuple[Decision, str]:
    """Return the decision and the prompt it leaves; a transform must come from a rewriter and hold just a prompt."""
    args: Mapping[str, Any] = decision.args or {}
    prompt = args.get("prompt")
    if not gate.rewrites or type(prompt) is not str or len(args) != 1:
        return refusal("answered transform; only a rewriter may, with {'prompt': text}"), left
    try:
        canonical.admit(prompt)
    except IntakeError as problem:
        return refusal(f"answered transform with {problem}"), left
    return decision, prompt
