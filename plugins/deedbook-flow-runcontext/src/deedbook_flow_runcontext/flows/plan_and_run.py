"""The flow ``plan-and-run``: clarify, scope, plan, execute, verify; everything it knows stands in its context.

| state | what happens |
|---|---|
| CREATED → CLARIFIED | the directive of the role ``lead`` if there is one, otherwise the prompt |
| → SCOPED | the skill of the run and the abilities in its scope |
| → PLANNED | the skills are compiled, or the role ``planner`` plans; the same validator checks both |
| → EXECUTING | the groups run in order, the steps of a group side by side |
| → VERIFYING → COMPLETED | the report covers the plan |
"""

from typing import Any, Final

import attrs

from deedbook import Failed, HandlerSpec, Host, Json, Object, Run
from deedbook_flow_runcontext.approval import APPROVAL_SETTING
from deedbook_flow_runcontext.compiler import (
    NO_SKILL,
    SETTINGS,
    CompilerSettings,
    PlanRefused,
    SkillCompiler,
    build_matcher,
)
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, Conversation, Limits
from deedbook_flow_runcontext.coverage import check_coverage
from deedbook_flow_runcontext.execution import PlanExecution, State, StepOutcome
from deedbook_flow_runcontext.flows.modes import PROMPT, build_clarification
from deedbook_flow_runcontext.matching import Match, Matcher
from deedbook_flow_runcontext.plan_check import PlanCheck
from deedbook_flow_runcontext.plans import upcast
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue
from deedbook_flow_runcontext.task_text import build_task_text

_SETTINGS: Final = {
    "type": "object",
    "properties": {
        **SETTINGS,
        "plan_by": {
            "enum": ["skills", "planner"],
            "default": "skills",
            "description": "Whether the plan is compiled from the skills, or made by the role planner.",
        },
        **APPROVAL_SETTING,
        **LIMIT_SETTINGS,
    },
    "additionalProperties": False,
}
_COMPILER: Final = tuple(attrs.fields_dict(CompilerSettings))


class PlanAndRun:
    """The flow: takes ``{prompt}``, writes its state to the context, and returns nothing.

    COMPLETED: the report covers the plan. FAILED: a required step failed. HALTED: a step with ``halt_on_failure``
    failed. NEEDS_HUMAN: it is unknown whether a step had its effect, or a step lacks an approval. A refused plan raises
    `Failed`, and nothing of it runs.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._compiler = CompilerSettings(**{name: settings[name] for name in _COMPILER if name in settings})
        self._limits = Limits.parse(settings)
        self._by_planner = settings.get("plan_by") == "planner"
        self._approval = settings.get("approval")

    def __call__(self, args: Object, run: Run) -> None:
        """Plan the work and do it."""
        catalogue = SkillCatalogue.from_run(run)
        self._clarify(run, args["prompt"])
        self._set_scope(run)
        self._plan(run, args["prompt"], catalogue)
        self._execute(run, catalogue)

    def _clarify(self, run: Run, prompt: str) -> None:
        """Clarify the request with the role ``lead``, if it has instructions."""
        try:
            conversation = Conversation(run, "lead", {"request": prompt}, self._limits)
        except Failed as failure:
            if failure.code != "BINDING_INVALID":
                raise
            run.context.clarify(build_clarification(prompt))
            return
        run.context.clarify(conversation.answer("lead_directive_v1"))

    def _set_scope(self, run: Run) -> None:
        directive = run.context.read().clarification
        skill = run.skill
        abilities = [ability.id for ability in run.abilities()]
        constraints = directive.get("constraints", [])
        run.context.set_scope(
            {
                "constraints": constraints,
                "skill": skill.name if skill else None,
                "abilities": abilities,
                "schema_version": "v1",
            }
        )

    def _plan(self, run: Run, prompt: str, catalogue: SkillCatalogue) -> None:
        now = run.context.read()
        if self._by_planner:
            told = {"request": prompt, "directive": now.clarification}
            conversation = Conversation(run, "planner", told, self._limits, plans=True)
            plan = conversation.answer("plan_v2", check=PlanCheck(catalogue), versions={"v1": "plan_v1"})
            run.context.plan(upcast(plan))
            return
        task = build_task_text(now.clarification, {}, prompt)  # the scope has only limits
        run.context.plan(self._compile(run, task, catalogue))

    def _compile(self, run: Run, task: str, catalogue: SkillCatalogue) -> dict[str, Any]:
        """Compile *task*; the skill of the run itself is a step only if it lists steps, or no other skill can be used.

        The skill of the run was chosen for the whole task, so it fits without being a part of the plan.
        """
        own = catalogue.find(run.skill.name) if run.skill else None
        matcher = build_matcher(self._compiler, catalogue.skills.values())
        if own is not None and not own.steps:
            try:
                return SkillCompiler(catalogue, self._compiler, _Without(matcher, own.skill.name)).compile(task)
            except PlanRefused as refused:
                if refused.code != NO_SKILL:
                    raise
        return SkillCompiler(catalogue, self._compiler, matcher).compile(task)

    def _execute(self, run: Run, catalogue: SkillCatalogue) -> None:
        now = run.context.read()
        plan = now.plan
        run.context.begin_execution()
        worker = RoleWorker(now.task["prompt"], now.clarification, catalogue, self._limits)
        execution = PlanExecution(run, plan, catalogue.abilities, worker, self._approval)
        execution.execute()
        if _end_early(run, plan, execution):
            return
        report = execution.report()
        findings = check_coverage(plan, report)
        run.context.verify(report)
        for finding in findings:
            run.context.add_finding(finding.as_json())
        if findings:
            run.context.fail("; ".join(finding.message for finding in findings))
        else:
            run.context.complete({"verdict": "pass", "checks": ["coverage"], "schema_version": "v1"})


@attrs.frozen(eq=False)
class RoleWorker:
    """Performs steps with the role ``worker``, within the skill of the step, or of the run without one.

    The worker is told the *request* and the *directive*.
    """

    request: str
    directive: Object
    catalogue: SkillCatalogue
    limits: Limits

    def allowed(self, step: Object) -> frozenset[str]:
        """Return the abilities that the skill of *step* allows; for a step without a skill, those of the run."""
        entry = self.catalogue.find(step["skill"]) if "skill" in step else None
        return entry.abilities if entry else frozenset(self.catalogue.abilities)

    def work(self, run: Run, step: Object, inputs: Object) -> Json:
        """Return the output of the worker's report, which has *step* as completed."""
        alone = {"id": step["id"], "description": step["description"]}
        told = {
            "request": self.request,
            "directive": self.directive,
            "plan": {"steps": [alone], "risks": [], "needs_advisor": False, "schema_version": "v1"},
            "inputs": dict(inputs),
        }
        skill = self.catalogue.skills.get(step.get("skill", ""))
        conversation = Conversation(run, "worker", told, self.limits, acts=True, skill=skill)
        report = conversation.answer("worker_report_v1", check=lambda made: _lacks(step["id"], made))
        return str(report["output"])


@attrs.frozen
class _Without:
    """A matcher that leaves one skill out."""

    matcher: Matcher
    name: str

    def match(self, task: str) -> list[Match]:
        """Return the other skills that fit."""
        return [each for each in self.matcher.match(task) if each.name != self.name]


def _lacks(step: str, report: Object) -> str:
    done = report["steps_completed"]
    return "" if step in done else f'steps_completed does not have "{step}"; complete the step, and name it'


def _end_early(run: Run, plan: Object, execution: PlanExecution) -> bool:
    """End the run if a step did: a lost effect needs a person before anything else is decided."""
    unknown, failed = execution.find(State.UNKNOWN), execution.find(State.FAILED)
    halting = {step["id"] for step in plan["steps"] if step.get("halt_on_failure")}
    if unknown:
        run.context.need_human(_describe("needs a person", unknown))
    elif any(each.step in halting for each in failed):
        run.context.halt(_describe("halts the plan", failed))
    elif failed:
        run.context.fail(_describe("failed", failed))
    return bool(unknown or failed)


def _describe(what: str, ended: list[StepOutcome]) -> str:
    return "; ".join(f'step "{each.step}" {what}: {each.reason}' for each in ended)[:2000]
