"""The flow ``ask-agent``: the agent that has the wanted capabilities does the work.

What is wanted is in the skill of the run, as ``metadata.deedbook.agent``, or in the settings. The choice reads cards
only. Then the persona of the chosen agent is read. A phase of a workflow that names this flow dispatches its personas
in this way.
"""

from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run, Skill
from deedbook_flow_runcontext.agent_choice import MAX_CAPABILITIES, AgentQuery
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, TURNS_SPENT, Conversation, Limits
from deedbook_flow_runcontext.coverage import check_coverage

from .modes import PROMPT, build_clarification

_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 128}
_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "capabilities": {
            "type": "array",
            "items": _NAME,
            "maxItems": MAX_CAPABILITIES,
            "description": "The agent has all of these, if the skill of the run names none.",
        },
        "domain": {"type": "string", "maxLength": 200, "description": "Words of the agent's domain."},
        **LIMIT_SETTINGS,
    },
    "additionalProperties": False,
}
_STEP: Final = "work"
_LONGEST: Final = 2000


class AskAgent:
    """The flow: takes ``{prompt}``; its context ends with the report of the agent.

    COMPLETED: the report says that the work is done. FAILED: it does not. NEEDS_HUMAN: the door asked for a person.
    HALTED: the agent used up its turns. Everything else raises `Failed`.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._query = AgentQuery.parse(settings)
        self._limits = Limits.parse(settings)

    def __call__(self, args: Object, run: Run) -> None:
        """Choose an agent by the cards, and let it do the work."""
        context, prompt = run.context, args["prompt"]
        query = _find_query(run.skill) or self._query
        if query == AgentQuery():
            raise Failed("NOT_AVAILABLE", "neither the skill nor the settings name the capabilities of an agent")
        agent = query.choose(run.agents()).name
        wanted = {"capabilities": list(query.capabilities), "domain": query.domain}
        context.clarify(build_clarification(prompt, agent=agent, wanted=wanted))
        plan = _build_plan(agent)
        context.plan(plan)
        context.begin_execution()
        handoff = {"request": prompt, "plan": plan}
        try:
            report = Conversation(run, agent, handoff, self._limits, acts=True).answer("worker_report_v1")
        except Failed as failure:
            _end(context, failure)
            return
        context.verify(report)
        missing = "; ".join(finding.message for finding in check_coverage(plan, report))
        if missing:
            context.fail(f"{missing}; the agent {agent} says: {report['output']}"[:_LONGEST])
        else:
            context.complete({"verdict": "pass", "schema_version": "v1"})


def _find_query(skill: Skill | None) -> AgentQuery | None:
    """Return what *skill* wants of an agent; raises `Failed` for anything but an object."""
    own: Any = skill.metadata.get("deedbook") if skill else None
    said = own.get("agent") if isinstance(own, dict) else None
    if said is None:
        return None
    if not isinstance(said, dict):
        raise Failed("SCHEMA_VIOLATION", f"metadata.deedbook.agent: expected capabilities and domain, found {said!r}")
    return AgentQuery.parse(said)


def _build_plan(agent: str) -> dict[str, Any]:
    steps = [{"id": _STEP, "description": f"The agent {agent} does the work.", "depends_on": []}]
    return {"steps": steps, "risks": [], "needs_advisor": False, "schema_version": "v1"}


def _end(context: Any, failure: Failed) -> None:
    """End the context if the flow gives the failure as a result; raise it otherwise."""
    reason = f"{failure.code}: {failure}"
    if failure.code == "NEEDS_HUMAN":
        context.need_human(reason)
    elif failure.code == TURNS_SPENT:
        context.halt(reason)
    else:
        raise failure
