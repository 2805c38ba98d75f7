"""From a prompt to a reply: the skill that matches, the profile's flow, the reply, and the hooks around them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from deedbook.contract import Json, Object, Principal, Skill
from deedbook.format import canonical
from deedbook.format.context import RunContext
from deedbook.format.errors import Err, Ok, Result, fault
from deedbook.policy.bound import Caller
from deedbook.policy.charter import ROUNDS
from deedbook.policy.commands import allowed_abilities
from deedbook.policy.fit import Choice, choose

from .hooks import HookRunner, refusal_error
from .run_journal import RunJournal


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

    *principal* asks, *caller* is the principal with its scope and the signals for the prompt. *message* is the span of
    the prompt's ``user.message``; every request passes the *journal* under it. *read_context* returns the context of a
    run.
    """

    hooks: HookRunner
    principal: Principal
    caller: Caller
    message: str
    journal: RunJournal
    read_context: Callable[[str], RunContext | None]

    def run(self, prompt: str, named: str | None = None) -> Result[Reply]:
        """Take the prompt through skill and flow to a reply; through the flow *named*, if any, without a skill."""
        if named is not None:
            return self._reply(self._rounds(self.caller, named, prompt, self.message))
        flow = str(self.journal.bindings.charter.document["flow"])
        choices = self._choices(prompt)
        if not choices:
            return self._reply(self._without_skill(flow, prompt))
        return self._with_skill(choices, flow, prompt)

    def _choices(self, prompt: str) -> list[Choice]:
        """Return the matching skills: by the intent that a hook signalled, if any matches, else by the prompt."""
        skills = self.journal.bindings.skills.values()
        intents = (each["value"] for each in self.caller.signals.get("normalized_intent", ()))
        found = (choose(text, skills, says="the intent") for text in intents)
        return next((each for each in found if each), None) or choose(prompt, skills)

    def _with_skill(self, choices: list[Choice], flow: str, prompt: str) -> Result[Reply]:
        skill = choices[0].skill
        invoked = self.journal.write("skill.invoke", "runtime", self._invocation(skill, choices))
        ask = partial(self.hooks.skill_start, skill.name, prompt, self.principal, invoked)
        fired = self.journal.fire("SkillStart", {"prompt": prompt}, ask)
        if fired.refusal is not None:
            self._complete(skill, invoked, ok=False, reason=fired.refusal)
            return refusal_error("SKILL_DENIED", fired)
        caller = attrs.evolve(self.caller, skill=skill.name)
        result = self._reply(self._rounds(caller, flow, fired.prompt, invoked))
        ok = isinstance(result, Ok) and result.value.state == "COMPLETED"
        reason = result.value.state if isinstance(result, Ok) else result.error.code
        self._complete(skill, invoked, ok=ok, reason=reason)
        return result

    def _without_skill(self, flow: str, prompt: str) -> Result[Json]:
        """Run the flow with an empty scope; if the model has no rule for that, list the skills."""
        result = self._rounds(self.caller, flow, prompt, self.message)
        if isinstance(result, Err) and result.error.code == "NO_RULE":
            skills = self.journal.bindings.skills.values()
            known = "; ".join(f"{each.name} ({', '.join(each.triggers)})" for each in skills) or "none"
            return Err(fault("NO_RULE", f"no skill fits this request; skills and their triggers: {known}"))
        return result

    def _rounds(self, caller: Caller, flow: str, prompt: str, cause: str) -> Result[Json]:
        """Run the flow; as long as a hook of ``Stop`` allows the end with a reason to go on, run it again.

        A hook that denies ends the run as it is.
        """
        most, asked = self.journal.bindings.charter.document.get("max_rounds", ROUNDS), prompt
        for left in range(most, -1, -1):
            ended = self.journal.request(caller, flow, {"prompt": asked}, cause)
            context = self._context_of(ended)
            passed = context is not None and context.state == "COMPLETED"
            ask = partial(self.hooks.stop, self.principal, self.message, ok=passed)
            fired = self.journal.fire("Stop", {}, ask)
            if not left or fired.refusal is not None or not fired.reasons:
                break
            asked = "\n\n".join((prompt, *fired.reasons))
        return ended

    def _context_of(self, ended: Result[Any]) -> RunContext | None:
        return None if isinstance(ended, Err) else self.read_context(ended.value["context"])

    def _reply(self, ended: Result[Any]) -> Result[Reply]:
        """Write the agent's reply, read from the context of the run."""
        context = self._context_of(ended)
        if isinstance(ended, Err) or context is None:
            return ended
        reply = Reply(context.reply, context.state, context, self.caller.signals)
        self.journal.write("agent.reply", "agent", {"reply": reply.text, "tool_calls": []})
        return Ok(reply)

    def _invocation(self, skill: Skill, choices: list[Choice]) -> dict[str, Any]:
        entry = self.journal.bindings.charter.document["skills"][skill.name]
        return {
            "skill": skill.name,
            "digest": canonical.digest(canonical.encode(entry)),
            "source": skill.source,
            "allowed": allowed_abilities(entry),
            "candidates": [{"skill": c.skill.name, "score": c.score, "reason": c.reason} for c in choices],
        }

    def _complete(self, skill: Skill, invoked: str, *, ok: bool, reason: str) -> None:
        payload = {"skill": skill.name, "ok": ok, "reason": reason}
        self.journal.write("skill.complete", "runtime", payload, invoked)
