"""From a prompt to a reply: the skill that matches, the profile's flow, the reply, and the hooks around them."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from deedbook.contract import Json, Object, Principal, Skill
from deedbook.format import canonical
from deedbook.format.errors import Err, Ok, Result, fault
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.commands import allowed_of
from deedbook.policy.fit import Choice, choose

from .door import Door
from .hooks import HookResult, HookRunner, refused


@attrs.frozen
class Reply:
    """The answer of a run: its text, its final state, the flow's whole result, and the signals of hooks."""

    text: str
    state: str
    result: Object
    signals: Object = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class PromptRun:
    """A prompt of a session on its way to a reply.

    *principal* asks, *caller* is the principal with its scope. *note* records an event and returns its span,
    *record_prompt* records the prompt itself.
    """

    bindings: Bindings
    hooks: HookRunner
    door: Door
    principal: Principal
    caller: Caller
    note: Callable[..., str]
    record_prompt: Callable[[HookResult], str]

    def run(self, fired: HookResult) -> Result[Reply]:
        """Record the prompt as hooks left it, and take it through skill and flow to a reply."""
        flow = self.bindings.charter.document["flow"]
        if flow is None:
            why = "no flow is set for this profile; `deedbook init --full` in another folder shows a profile with one"
            return Err(fault("BINDING_INVALID", why))
        message = self.record_prompt(fired)
        caller = attrs.evolve(self.caller, signals=fired.signals)
        choices = self._choices(fired)
        if not choices:
            return self._reply(self._without_skill(caller, flow, fired.prompt, message), message, caller)
        return self._with_skill(caller, choices, flow, fired.prompt, message)

    def _choices(self, fired: HookResult) -> list[Choice]:
        """Return the matching skills: by the intent that a hook signalled, if any matches, else by the prompt."""
        skills = self.bindings.skills.values()
        intents = (each["value"] for each in fired.signals.get("normalized_intent", ()))
        found = (choose(text, skills, says="the intent") for text in intents)
        return next((each for each in found if each), None) or choose(fired.prompt, skills)

    def _with_skill(self, caller: Caller, choices: list[Choice], flow: str, prompt: str, message: str) -> Result[Reply]:
        skill = choices[0].skill
        invoked = self.note("skill.invoke", "runtime", self._invocation(skill, choices), cause=message)
        fired = self.hooks.skill_start(skill.name, prompt, self.principal, invoked)
        if fired.refusal is not None:
            self._complete(skill, invoked, ok=False, reason=fired.refusal)
            return refused("SKILL_DENIED", fired)
        ended = self._flow(attrs.evolve(caller, skill=skill.name), flow, fired.prompt, invoked)
        result = self._reply(ended, message, caller)
        ok = isinstance(result, Ok) and result.value.state == "COMPLETED"
        reason = result.value.state if isinstance(result, Ok) else result.error.code
        self._complete(skill, invoked, ok=ok, reason=reason)
        return result

    def _without_skill(self, caller: Caller, flow: str, prompt: str, message: str) -> Result[Json]:
        """Run the flow with an empty scope; if the model has no rule for that, list the skills."""
        result = self._flow(caller, flow, prompt, message)
        if isinstance(result, Err) and result.error.code == "NO_RULE":
            skills = self.bindings.skills.values()
            known = "; ".join(f"{each.name} ({', '.join(each.triggers)})" for each in skills) or "none"
            return Err(fault("NO_RULE", f"no skill fits this request; skills and their triggers: {known}"))
        return result

    def _flow(self, caller: Caller, flow: str, prompt: str, cause: str) -> Result[Json]:
        return self.door.call(caller, flow, {"prompt": prompt}, cause)

    def _reply(self, ended: Result[Any], message: str, caller: Caller) -> Result[Reply]:
        """Write the agent's reply, and ask the hooks whether the loop may continue."""
        if isinstance(ended, Err):
            self.hooks.stop(self.principal, message, ok=False)
            return ended
        result = ended.value if isinstance(ended.value, Mapping) else {"reply": ended.value}
        reply = Reply(_text(result.get("reply", "")), str(result.get("state", "COMPLETED")), result, caller.signals)
        self.note("agent.reply", "agent", {"reply": reply.text, "tool_calls": []}, cause=message)
        self.hooks.stop(self.principal, message, ok=reply.state == "COMPLETED")
        return Ok(reply)

    def _invocation(self, skill: Skill, choices: list[Choice]) -> dict[str, Any]:
        entry = self.bindings.charter.document["skills"][skill.name]
        return {
            "skill": skill.name,
            "digest": canonical.digest(canonical.encode(entry)),
            "source": skill.source,
            "allowed": allowed_of(entry),
            "candidates": [{"skill": c.skill.name, "score": c.score, "reason": c.reason} for c in choices],
        }

    def _complete(self, skill: Skill, invoked: str, *, ok: bool, reason: str) -> None:
        payload = {"skill": skill.name, "ok": ok, "reason": reason}
        self.note("skill.complete", "runtime", payload, cause=invoked)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()
