"""From a prompt to a reply: the skill that matches, the profile's flow, the reply, and the hooks around them."""

from collections.abc import Callable
from typing import Any, Final

import attrs

from deedbook.contract import Json, Object, Principal, Skill
from deedbook.format import canonical
from deedbook.format.context import RunContext
from deedbook.format.errors import Err, Ok, Result, fault
from deedbook.plugins.routing.fit import Choice, choose
from deedbook.policy.bindings import Bindings
from deedbook.policy.bound import Caller
from deedbook.policy.commands import allowed_of

from .door import Door
from .hooks import HookResult, HookRunner, refused

MAX_ROUNDS: Final = 3
"""How often hooks of ``Stop`` may send a run into another round, unless the profile says otherwise."""


@attrs.frozen
class Reply:
    """The answer of a run: its text and final state, the *context* from which both are read, and hooks' signals."""

    text: str
    state: str
    context: RunContext
    signals: Object = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class PromptRun:
    """A prompt of a session on its way to a reply.

    *principal* asks, *caller* is the principal with its scope. *note* records an event and returns its span,
    *record_prompt* records the prompt itself, *read_context* returns the context of a run.
    """

    bindings: Bindings
    hooks: HookRunner
    door: Door
    principal: Principal
    caller: Caller
    note: Callable[..., str]
    record_prompt: Callable[[HookResult], str]
    read_context: Callable[[str], RunContext | None]

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
        ended = self._rounds(attrs.evolve(caller, skill=skill.name), flow, fired.prompt, invoked, message)
        result = self._reply(ended, message, caller)
        ok = isinstance(result, Ok) and result.value.state == "COMPLETED"
        reason = result.value.state if isinstance(result, Ok) else result.error.code
        self._complete(skill, invoked, ok=ok, reason=reason)
        return result

    def _without_skill(self, caller: Caller, flow: str, prompt: str, message: str) -> Result[Json]:
        """Run the flow with an empty scope; if the model has no rule for that, list the skills."""
        result = self._rounds(caller, flow, prompt, message, message)
        if isinstance(result, Err) and result.error.code == "NO_RULE":
            skills = self.bindings.skills.values()
            known = "; ".join(f"{each.name} ({', '.join(each.triggers)})" for each in skills) or "none"
            return Err(fault("NO_RULE", f"no skill fits this request; skills and their triggers: {known}"))
        return result

    def _rounds(self, caller: Caller, flow: str, prompt: str, cause: str, message: str) -> Result[Json]:
        """Run the flow; as long as a hook of ``Stop`` allows the end with a reason to go on, run it again.

        A hook that denies ends the run as it is.
        """
        most, asked = self.bindings.charter.document.get("max_rounds", MAX_ROUNDS), prompt
        for left in range(most, -1, -1):
            ended = self.door.call(caller, flow, {"prompt": asked}, cause)
            fired = self.hooks.stop(self.principal, message, ok=self._passed(ended))
            if not left or fired.refusal is not None or not fired.reasons:
                break
            asked = "\n\n".join((prompt, *fired.reasons))
        return ended

    def _passed(self, ended: Result[Any]) -> bool:
        context = self._context_of(ended)
        return context is not None and context.state == "COMPLETED"

    def _context_of(self, ended: Result[Any]) -> RunContext | None:
        return None if isinstance(ended, Err) else self.read_context(ended.value["context"])

    def _reply(self, ended: Result[Any], message: str, caller: Caller) -> Result[Reply]:
        """Write the agent's reply, read from the context of the run."""
        context = self._context_of(ended)
        if isinstance(ended, Err) or context is None:
            return ended
        reply = Reply(context.reply, context.state, context, caller.signals)
        self.note("agent.reply", "agent", {"reply": reply.text, "tool_calls": []}, cause=message)
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
