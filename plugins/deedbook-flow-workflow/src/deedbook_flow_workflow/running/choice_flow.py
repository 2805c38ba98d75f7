"""The flow ``workflow-choice``: chooses the cycle for a prompt, and runs it. It can be the flow of a profile.

A skill names its cycle as ``metadata.deedbook.cycle``. Without one, the role ``lead`` may name it, as ``cycle`` in a
``lead_directive_v2``. Where neither does, the ability in the setting ``otherwise`` gets the prompt.
"""

from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run, Skill
from deedbook.contract import AbilityInfo
from deedbook.format.schema import suggest
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, Conversation, Limits
from deedbook_flow_runcontext.flows.modes import PROMPT
from deedbook_flow_workflow.definition import PREFIX

_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "lead": {
            "type": "boolean",
            "default": False,
            "description": "Ask the role lead for the cycle, if the skill names none.",
        },
        "otherwise": {"type": "string", "minLength": 1, "description": "The flow for a prompt without a cycle."},
        **LIMIT_SETTINGS,
    },
    "additionalProperties": False,
}


class ChooseCycle:
    """The flow: takes ``{prompt}``; its context ends as that of the cycle does. Its ``uses:`` name the cycles."""

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._asks_lead = settings.get("lead", False)
        self._otherwise: str | None = settings.get("otherwise")
        self._limits = Limits.parse(settings)

    def __call__(self, args: Object, run: Run) -> None:
        """Choose the cycle, run it, and end as it ended."""
        cycles = {each.id.removeprefix(PREFIX): each.summary for each in run.abilities() if _is_cycle(each)}
        directive = self._choose(run, args["prompt"], cycles)
        cycle = directive.get("cycle")
        ability = self._otherwise if cycle is None else f"{PREFIX}{_check(cycle, cycles)}"
        if ability is None:
            known = ", ".join(sorted(cycles)) or "none"
            raise Failed("NOT_AVAILABLE", f"no skill and no lead named a cycle for this prompt; cycles: {known}")
        context = run.context
        context.clarify({**directive, "schema_version": "v1"})  # a clarification_v1, whatever the directive is
        steps = [{"id": ability, "description": f"Run {ability}", "depends_on": []}]
        context.plan({"steps": steps, "risks": [], "needs_advisor": False, "schema_version": "v1"})
        context.begin_execution()
        _end_as(context, run.read_context(run.call(ability, {"prompt": args["prompt"]})), ability)

    def _choose(self, run: Run, prompt: str, cycles: Object) -> dict[str, Any]:
        """Return the directive: that of the lead, or the intent with the cycle that the skill names."""
        named = _cycle_of(run.skill)
        if named is not None or not self._asks_lead:
            return {"intent": prompt, **({} if named is None else {"cycle": named})}
        handoff = {"request": prompt, "cycles": dict(cycles)}
        lead = Conversation(run, "lead", handoff, self._limits)
        return lead.answer(
            "lead_directive_v1",
            check=lambda said: _describe_unknown(said.get("cycle"), cycles),
            versions={"v2": "lead_directive_v2"},
        )


def _is_cycle(info: AbilityInfo) -> bool:
    return info.kind == "flow" and info.id.startswith(PREFIX)


def _cycle_of(skill: Skill | None) -> str | None:
    """Return the cycle that a skill names; raises `Failed` for one that is no text."""
    own = skill.metadata.get("deedbook") if skill else None
    named = own.get("cycle") if isinstance(own, dict) else None
    if named is not None and (not isinstance(named, str) or not named):
        raise Failed("SCHEMA_VIOLATION", f"metadata.deedbook.cycle: expected the id of a cycle, found {named!r}")
    return named


def _describe_unknown(cycle: Any, cycles: Object) -> str:
    if cycle is None or cycle in cycles:
        return ""
    return f"there is no cycle {cycle!r}{suggest(str(cycle), cycles)}; cycles: {', '.join(sorted(cycles)) or 'none'}"


def _check(cycle: str, cycles: Object) -> str:
    why = _describe_unknown(cycle, cycles)
    if why:
        raise Failed("NOT_AVAILABLE", f"{why} (of those in the uses of this ability)")
    return cycle


def _end_as(context: Any, inner: Any, ability: str) -> None:
    if inner.state == "COMPLETED":
        context.verify({**inner.report, "steps_completed": [ability]})
        context.complete({"verdict": "pass", "schema_version": "v1"})
    elif inner.state == "NEEDS_HUMAN":
        context.need_human(inner.reply)
    else:
        (context.halt if inner.state == "HALTED" else context.fail)(inner.reply)
