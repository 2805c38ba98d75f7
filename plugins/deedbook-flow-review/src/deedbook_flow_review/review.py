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

A person is asked with the ability in the setting ``approval``: before the work, if a step of the plan has a tag that
wants that, and in place of another rework, whether the report is accepted. Steps that only wait for a person are no
work: the worker is not told about them, and may not report them.

An advisor (``advice_v1``) is heard before the next role where a directive or a plan has ``needs_advisor``; a scaffolder
(``scaffold_v1``) prepares the work where one has ``needs_scaffolder``.
"""

from collections.abc import Sequence
from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook.contract import RunState
from deedbook_flow_runcontext.approval import APPROVAL_MISSING, APPROVAL_SETTING, ask_person
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, TURNS_SPENT, Conversation, Limits
from deedbook_flow_runcontext.coverage import check_coverage
from deedbook_flow_runcontext.execution import NOTE, State
from deedbook_flow_runcontext.findings import quote_names
from deedbook_flow_runcontext.flows.modes import PROMPT
from deedbook_flow_runcontext.plan_check import PlanCheck
from deedbook_flow_runcontext.plan_summary import check_policy
from deedbook_flow_runcontext.plans import APPROVAL_GATE, is_approval
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue

_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "max_rework": {"type": "integer", "minimum": 0, "maximum": 20, "default": 1},
        **APPROVAL_SETTING,
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

    COMPLETED: a reviewer passed the report, or a person accepted it. NEEDS_HUMAN: no report passed in time, or a person
    must decide, and no ability asks one.
    HALTED: a role used up its turns. Everything else raises `Failed` and leaves the context FAILED, or HALTED if the
    run was cancelled.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=PROMPT, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._limits = Limits.parse(settings)
        self._max_rework = settings.get("max_rework", 1)
        self._approval = settings.get("approval")

    def __call__(self, args: Object, run: Run) -> None:
        """Take one request through the roles."""
        loop = Loop(run, self._limits, args["prompt"], self._max_rework, self._approval)
        try:
            loop.go()
        except Failed as failure:
            loop.stop(failure)


class Loop:
    """One request on its way through the roles; all state stands in the run's context."""

    def __init__(self, run: Run, limits: Limits, prompt: str, max_rework: int = 1, approval: str | None = None) -> None:
        self._run = run
        self._max_rework = max_rework
        self._approval = approval
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
        if failure.code in ("NEEDS_HUMAN", APPROVAL_MISSING):
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
        """Hear the advisor about the plan, and ask a person; begin the work, and let the scaffolder go first.

        Each only where it is wanted.
        """
        now = self._context.read()
        told = {"directive": now.clarification, "plan": now.plan}
        advice = self._advice(now.plan, told)
        if advice:
            self._context.note(ADVICE, advice)
        self._approve(now.plan)
        self._context.begin_execution()
        if any((each or {}).get("needs_scaffolder") for each in told.values()):
            scaffold = self._ask("scaffolder", {**told, **advice}, acts=True).answer("scaffold_v1")
            self._context.note(SCAFFOLD, {"scaffold": scaffold})

    def _approve(self, plan: Object) -> None:
        """Ask a person about a plan with tagged steps; raises `Failed` unless the person approves."""
        decision = check_policy(self._context.read())
        if decision.verdict == "ALLOW":
            return
        subject = {
            "step": "plan",
            "description": f"Do the work of the plan: {decision.reason}.",
            "tags": sorted({tag for tags in decision.steps.values() for tag in tags}),
            "args": {"steps": [step for step in plan["steps"] if step["id"] in decision.steps]},
        }
        ask_person(self._run, self._approval, subject, decision.reason)
        for gate in _find_gates(plan):
            self._context.note(NOTE, {"step": gate, "state": State.COMPLETED.value})

    def _work(self) -> None:
        now = self._context.read()
        gates = _find_gates(now.plan)
        told = {"directive": now.clarification, "plan": _leave_out_steps(now.plan, gates)}
        for entry in now.log:
            if entry.event_type in (ADVICE, SCAFFOLD):
                told |= entry.data
        failed = [entry.data for entry in now.log if entry.event_type == FAILED]
        if failed:
            completed = [name for name in now.report["steps_completed"] if name not in gates]
            told |= {"report": {**now.report, "steps_completed": completed}, "feedback": failed[-1]["feedback"]}
        worker = self._ask("worker", told, acts=True)
        report = worker.answer("worker_report_v1", check=lambda made: _check_gates(gates, made))
        self._context.verify({**report, "steps_completed": [*gates, *report["steps_completed"]]})

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
            self._rework(now, review["feedback"])

    def _rework(self, now: RunState, feedback: str) -> None:
        """Begin another attempt; after the last one, ask a person whether the report is accepted."""
        if now.attempts <= self._max_rework:
            self._context.begin_execution()
            return
        why = f"No report passed the review in {now.attempts} attempts; the last feedback: {feedback}"
        if self._approval is None:
            self._context.need_human(why)
            return
        subject = {
            "step": "report",
            "description": "Accept the report, which did not pass the review.",
            "tags": [APPROVAL_GATE],
            "args": {"report": now.report, "feedback": feedback, "attempts": now.attempts},
        }
        ask_person(self._run, self._approval, subject, why)
        self._context.complete({"verdict": "pass", "feedback": feedback, "checks": ["person"], "schema_version": "v1"})

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


def _find_gates(plan: Object) -> list[str]:
    """Return the ids of the steps that only wait for a person."""
    return [step["id"] for step in plan["steps"] if is_approval(step)]


def _leave_out_steps(plan: Object, names: Sequence[str]) -> Object:
    """Return *plan* without the steps *names*, on which no other step depends then."""
    if not names:
        return plan
    steps = [
        {**step, "depends_on": [each for each in step.get("depends_on", ()) if each not in names]}
        for step in plan["steps"]
        if step["id"] not in names
    ]
    return {**plan, "steps": steps}


def _check_gates(gates: Sequence[str], report: Object) -> str:
    """Return what is wrong with a report that names steps which only a person completes."""
    own = [name for name in gates if name in report["steps_completed"]]
    return f"steps_completed has {quote_names(own)}, which only a person completes; leave it out" if own else ""
