"""The review loop, whose stage stands in the run's context and nowhere else.

| stage | context | role | hands over |
|---|---|---|---|
| intake | CREATED | | the request |
| lead | → CLARIFIED → SCOPED | lead | ``lead_directive_v1`` |
| plan | → PLANNED | planner | ``plan_v1`` or ``plan_v2``, which passes the validator |
| work | → EXECUTING | worker | ``worker_report_v1`` |
| review | → VERIFYING | reviewer | ``review_result_v1`` |
| rework | VERIFYING → EXECUTING | | the feedback, at most ``max_rework`` times |

A report passes only if it covers the plan: each required step is completed, each optional one completed or skipped.

An advisor (``advice_v1``) is heard before the next role where a directive or a plan has ``needs_advisor``; a scaffolder
(``scaffold_v1``) prepares the work where one has ``needs_scaffolder``.
"""

from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, TURNS_SPENT, Conversation, Limits
from deedbook_flow_runcontext.coverage import check_coverage
from deedbook_flow_runcontext.flows.modes import PROMPT
from deedbook_flow_runcontext.plan_check import PlanCheck
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue

_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "max_rework": {"type": "integer", "minimum": 0, "maximum": 20, "default": 1},
        **LIMIT_SETTINGS,
    },
    "additionalProperties": False,
}


ADVICE: Final = "advice"
SCAFFOLD: Final = "scaffold"
FAILED: Final = "review.failed"
"""Notes in the execution log: what the advisor and the scaffolder gave, and a review that failed."""


class Review:
    """The flow ``review``: takes ``{prompt}`` and writes its state to the context.

    COMPLETED: a reviewer passed the report. NEEDS_HUMAN: no report passed in time, or the door asked for a person.
    HALTED: a role used up its turns. Everything else raises `Failed` and leaves the context FAILED, or HALTED if the
    run was cancelled.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._limits = Limits.parse(settings)
        self._max_rework = settings.get("max_rework", 1)

    def __call__(self, args: Object, run: Run) -> None:
        """Take one request through the roles."""
        loop = Loop(run, self._limits, args["prompt"], self._max_rework)
        try:
            loop.go()
        except Failed as failure:
            loop.stop(failure)


class Loop:
    """One request on its way through the roles; all state stands in the run's context."""

    def __init__(self, run: Run, limits: Limits, prompt: str, max_rework: int = 1) -> None:
        self._run = run
        self._max_rework = max_rework
        self._context = run.context
        self._limits = limits
        self._prompt = prompt

    def go(self) -> None:
        """Do what the context's state calls for, until it is a state that nothing follows."""
        stages = {
            "CREATED": self._lead,
            "SCOPED": self._make_plan,
            "PLANNED": self._prepare,
            "EXECUTING": self._work,
            "VERIFYING": self._verify,
        }
        while stage := stages.get(self._context.state):
            stage()

    def stop(self, failure: Failed) -> None:
        """End the context for *failure*; raise it again unless it is an outcome that the flow gives as a result."""
        reason = f"{failure.code}: {failure}"
        if failure.code == "NEEDS_HUMAN":
            self._context.need_human(reason)
            return
        if failure.code == TURNS_SPENT:
            self._context.halt(reason)
            return
        (self._context.halt if failure.code == "CANCELLED" else self._context.fail)(reason)
        raise failure

    # --- the stages --------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        directive = self._ask("lead", {}).answer("lead_directive_v1")
        skill = self._run.skill
        self._context.clarify(directive)
        self._context.set_scope(
            {
                "constraints": directive["constraints"],
                "skill": skill.name if skill else None,
                "abilities": sorted(skill.allowed) if skill else [],
                "schema_version": "v1",
            }
        )

    def _make_plan(self) -> None:
        told = {"directive": self._context.read().clarification}
        planner = self._ask("planner", {**told, **self._advice(told["directive"], told)}, plans=True)
        check = PlanCheck(SkillCatalogue.from_run(self._run))
        self._context.plan(planner.answer("plan_v1", check=check, versions={"v2": "plan_v2"}))

    def _prepare(self) -> None:
        """Hear the advisor about the plan, begin the work, and let the scaffolder go first, where that is wanted."""
        now = self._context.read()
        told = {"directive": now.clarification, "plan": now.plan}
        advice = self._advice(now.plan, told)
        if advice:
            self._context.note(ADVICE, advice)
        self._context.begin_execution()
        if any((each or {}).get("needs_scaffolder") for each in told.values()):
            scaffold = self._ask("scaffolder", {**told, **advice}, acts=True).answer("scaffold_v1")
            self._context.note(SCAFFOLD, {"scaffold": scaffold})

    def _work(self) -> None:
        now = self._context.read()
        told = {"directive": now.clarification, "plan": now.plan}
        for entry in now.log:
            if entry.event_type in (ADVICE, SCAFFOLD):
                told |= entry.data
        failed = [entry.data for entry in now.log if entry.event_type == FAILED]
        feedback = {"report": now.report, "feedback": failed[-1]["feedback"]} if failed else {}
        self._context.verify(self._ask("worker", {**told, **feedback}, acts=True).answer("worker_report_v1"))

    def _verify(self) -> None:
        now = self._context.read()
        told = {"directive": now.clarification, "plan": now.plan, "report": now.report}
        missing = "; ".join(finding.message for finding in check_coverage(now.plan, now.report))
        if missing:  # no reviewer can pass it
            feedback = f"{missing}; the report says: {now.report['output']}" if now.report else missing
            review = {"verdict": "fail", "feedback": feedback, "schema_version": "v1"}
        else:
            review = self._ask("reviewer", told).answer("review_result_v1")
        if review["verdict"] == "pass":
            self._context.complete(review)
        else:
            self._context.note(FAILED, review)
            self._rework(now.attempts, review["feedback"])

    def _rework(self, attempts: int, feedback: str) -> None:
        if attempts <= self._max_rework:
            self._context.begin_execution()
            return
        why = f"No report passed the review in {attempts} attempts; the last feedback: {feedback}"
        self._context.need_human(why)

    # --- the roles ---------------------------------------------------------------------------------------------------

    def _ask(self, role: str, told: Object, *, acts: bool = False, plans: bool = False) -> Conversation:
        """Hand over to *role*; raises `Failed` if another role answers: no role may review its own work."""
        handoff = {"request": self._prompt, **told}
        conversation = Conversation(self._run, role, handoff, self._limits, acts=acts, plans=plans)
        if conversation.agent.role != role:
            raise Failed("BINDING_INVALID", f"the role {conversation.agent.role} stands in for {role}")
        return conversation

    def _advice(self, message: Object | None, told: Object) -> dict[str, Any]:
        if not (message or {}).get("needs_advisor"):
            return {}
        return {"advice": self._ask("advisor", told).answer("advice_v1")}
