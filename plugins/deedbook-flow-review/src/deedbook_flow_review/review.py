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

A person is asked with the ability in the setting ``approval``: when the work reaches a step with a tag that wants that,
and in place of another rework, whether the report is accepted. The worker gets the steps up to there, and the others
after the answer (`plan_parts`). Steps that only wait for a person are no work: the worker is not told about them, and
may not report them.

An advisor (``advice_v1``) is heard before the next role where a directive or a plan has ``needs_advisor``; a scaffolder
(``scaffold_v1``) prepares the work where one has ``needs_scaffolder``.
"""

from collections.abc import Sequence
from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook.contract import RunState
from deedbook_flow_runcontext.approval import APPROVAL_MISSING, APPROVAL_SETTING, ask_person, require_approval
from deedbook_flow_runcontext.conversation import LIMIT_SETTINGS, TURNS_SPENT, Conversation, Limits
from deedbook_flow_runcontext.coverage import check_coverage
from deedbook_flow_runcontext.execution import NOTE, State
from deedbook_flow_runcontext.findings import Finding, quote_names
from deedbook_flow_runcontext.flows.modes import PROMPT
from deedbook_flow_runcontext.plan_check import PlanCheck
from deedbook_flow_runcontext.plan_summary import check_steps
from deedbook_flow_runcontext.plans import APPROVAL_GATE
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue

from .plan_parts import PlanPart, merge_reports, select_steps, split_plan

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
APPROVED: Final = "review.approved"
PART: Final = "review.part"
FAILED: Final = "review.failed"
"""Notes in the execution log: what the advisor and the scaffolder gave, the steps that a person approved, the report so
far of a plan with several parts, and a review that failed."""


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
        parts = split_plan(now.plan)
        tagged = [step for part in parts for step in part.asked]
        if tagged:
            require_approval(self._run, self._approval, check_steps(tagged).reason)
        self._approve(parts[0])
        self._context.begin_execution()
        if any((each or {}).get("needs_scaffolder") for each in told.values()):
            plan = now.plan if len(parts) == 1 else select_steps(now.plan, parts[0].steps)
            scaffold = self._ask("scaffolder", {**told, **advice, "plan": plan}, acts=True).answer("scaffold_v1")
            self._context.note(SCAFFOLD, {"scaffold": scaffold})

    def _approve(self, part: PlanPart, report: Object | None = None) -> None:
        """Ask a person about the tagged steps of *part*, if it has any; raises `Failed` unless the person approves.

        The person sees the *report* of the work before.
        """
        decision = check_steps(part.asked)
        if decision.verdict == "ALLOW":
            return
        subject = {
            "step": "plan",
            "description": f"Do the work of the plan: {decision.reason}.",
            "tags": sorted({tag for tags in decision.steps.values() for tag in tags}),
            "args": {"steps": part.asked, **({"report": report} if report else {})},
        }
        ask_person(self._run, self._approval, subject, decision.reason)
        self._context.note(APPROVED, {"steps": list(decision.steps)})
        for gate in part.gates:
            self._context.note(NOTE, {"step": gate, "state": State.COMPLETED.value})

    def _work(self) -> None:
        """Let the worker do the parts that are approved, then ask a person before each further one.

        A part that the report does not cover ends the work, so that no person is asked too early.
        """
        now = self._context.read()
        plan: Object = now.plan or {}
        parts = split_plan(plan)
        count = _count_open(parts, now)
        steps = [step for part in parts[:count] for step in part.steps]
        gates = [gate for part in parts[:count] for gate in part.gates]
        report: dict[str, Any] = {}
        if steps or count == len(parts):
            report = self._work_on(plan, steps, self._read_feedback(now, gates))
        for part in parts[count:]:
            if report and check_coverage(select_steps(plan, steps), report):
                break
            self._pause(report)
            self._approve(part, report)
            steps, gates = [*steps, *part.steps], [*gates, *part.gates]
            if part.steps or (not report and part is parts[-1]):
                before = {"report": report} if report else {}
                report = merge_reports(report, self._work_on(plan, part.steps, before))
        self._context.verify({**report, "steps_completed": [*gates, *report["steps_completed"]]})

    def _work_on(self, plan: Object, steps: Sequence[Object], more: Object) -> dict[str, Any]:
        """Hand *steps* over to the worker, and return its report about them."""
        now = self._context.read()
        told = {"directive": now.clarification, "plan": select_steps(plan, steps)}
        for entry in now.log:
            if entry.event_type in (ADVICE, SCAFFOLD):
                told |= entry.data
        names = {step["id"] for step in steps}
        others = [step["id"] for step in plan["steps"] if step["id"] not in names]
        worker = self._ask("worker", {**told, **more}, acts=True)
        return worker.answer("worker_report_v1", check=lambda made: _check_others(others, made))

    def _pause(self, report: Object) -> None:
        """Note what is done before a person is asked about the next part."""
        if report:
            self._context.note(PART, {"report": report})
        for step in report.get("steps_completed", ()):
            self._context.note(NOTE, {"step": step, "state": State.COMPLETED.value})

    def _read_feedback(self, now: RunState, gates: Sequence[str]) -> dict[str, Any]:
        """Return what a worker is told who works again: its report, without *gates*, and the feedback."""
        failed = [entry.data for entry in now.log if entry.event_type == FAILED]
        if not failed or now.report is None:
            return {}
        completed = [name for name in now.report["steps_completed"] if name not in gates]
        return {"report": {**now.report, "steps_completed": completed}, "feedback": failed[-1]["feedback"]}

    def _verify(self) -> None:
        now = self._context.read()
        told = {"directive": now.clarification, "plan": now.plan, "report": now.report}
        missing = "; ".join(finding.message for finding in _find_missing(now.plan or {}, now))
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


def _count_open(parts: Sequence[PlanPart], now: RunState) -> int:
    """Return how many parts of the plan may be worked on: those that no person is asked about, or has approved."""
    approved = sum(1 for entry in now.log if entry.event_type == APPROVED)
    return approved if parts[0].asked else approved + 1


def _find_missing(plan: Object, now: RunState) -> Sequence[Finding]:
    """Return what the report lacks: of the parts that were begun, or else of the whole plan."""
    parts, report = split_plan(plan), now.report or {}
    begun = {each["id"] for part in parts[: _count_open(parts, now)] for each in (*part.asked, *part.steps)}
    steps = [step for step in plan["steps"] if step["id"] in begun]
    return check_coverage(select_steps(plan, steps), report) or check_coverage(plan, report)


def _check_others(others: Sequence[str], report: Object) -> str:
    """Return what is wrong with a report that names steps which are not part of the work."""
    own = [name for name in others if name in report["steps_completed"]]
    if not own:
        return ""
    return f"steps_completed has {quote_names(own)}, which the plan that you got does not have; leave it out"
