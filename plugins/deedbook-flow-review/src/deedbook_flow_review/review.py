"""The review loop, whose stage stands in the run's context and nowhere else.

| stage | context | role | hands over |
|---|---|---|---|
| intake | CREATED | | the request |
| lead | → CLARIFIED → SCOPED | lead | ``lead_directive_v1`` |
| plan | → PLANNED | planner | ``plan_v1`` |
| work | → EXECUTING | worker | ``worker_report_v1`` |
| review | → VERIFYING | reviewer | ``review_result_v1`` |
| rework | VERIFYING → EXECUTING | | the feedback, at most ``max_rework`` times |

An advisor (``advice_v1``) is heard before the next role where a directive or a plan has ``needs_advisor``; a scaffolder
(``scaffold_v1``) prepares the work where one has ``needs_scaffolder``.
"""

from typing import Any, Final

from deedbook import Failed, HandlerSpec, Host, Object, Run

from .conversation import TURNS_SPENT, Conversation, Limits

_SETTINGS: Final = {
    "type": "object",
    "properties": {
        "max_rework": {"type": "integer", "minimum": 0, "maximum": 20, "default": 1},
        "max_turns": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 12},
        "max_malformed": {"type": "integer", "minimum": 0, "maximum": 20, "default": 1},
    },
    "additionalProperties": False,
}
_TAKES: Final = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}},
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["reply", "state", "report", "review"],
    "properties": {
        "reply": {"type": "string"},
        "state": {"enum": ["COMPLETED", "HALTED", "NEEDS_HUMAN"]},
        "report": {"type": ["object", "null"]},
        "review": {"type": ["object", "null"]},
    },
    "additionalProperties": False,
}


class Review:
    """The flow ``review``: takes ``{prompt}``, gives ``{reply, state, report, review}``.

    COMPLETED: a reviewer passed the report. NEEDS_HUMAN: no report passed in time, or the door asked for a person.
    HALTED: a role used up its turns. Everything else raises `Failed` and leaves the context FAILED, or HALTED if the
    run was cancelled.
    """

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, gives=_GIVES, effects="none")

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        self._limits = Limits(**settings)

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Take one request through the roles."""
        if run.context.state != "CREATED":
            raise Failed("SCHEMA_VIOLATION", f"a review begins in a new context; this one is {run.context.state}")
        loop = Loop(run, self._limits, args["prompt"])
        try:
            loop.go()
        except Failed as failure:
            loop.stop(failure)
        return loop.result()


class Loop:
    """One request on its way through the roles."""

    def __init__(self, run: Run, limits: Limits, prompt: str) -> None:
        self._run = run
        self._context = run.context
        self._limits = limits
        self._prompt = prompt
        self._directive: dict[str, Any] = {}
        self._plan: dict[str, Any] = {}
        self._task: dict[str, Any] = {}
        self._worker: Conversation | None = None
        self._reworked = 0
        self._report: dict[str, Any] | None = None
        self._review: dict[str, Any] | None = None
        self._reply = ""

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
        self._reply = str(failure)
        reason = f"{failure.code}: {failure}"
        if failure.code == "NEEDS_HUMAN":
            self._context.need_human(reason)
            return
        if failure.code == TURNS_SPENT:
            self._context.halt(reason)
            return
        (self._context.halt if failure.code == "CANCELLED" else self._context.fail)(reason)
        raise failure

    def result(self) -> dict[str, Any]:
        """Return what the flow gives."""
        return {"reply": self._reply, "state": self._context.state, "report": self._report, "review": self._review}

    # --- the stages --------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        self._directive = self._ask("lead", {}).answer("lead_directive_v1")
        skill = self._run.skill
        self._context.clarify(self._directive)
        self._context.scope(
            {
                "constraints": self._directive["constraints"],
                "skill": skill.name if skill else None,
                "abilities": sorted(skill.allowed) if skill else [],
            }
        )

    def _make_plan(self) -> None:
        told = {"directive": self._directive}
        planner = self._ask("planner", {**told, **self._advice(self._directive, told)}, plans=True)
        self._plan = planner.answer("plan_v1")
        self._context.plan(self._plan)

    def _prepare(self) -> None:
        """Hear the advisor about the plan, begin the work, and let the scaffolder go first, where that is wanted."""
        told = {"directive": self._directive, "plan": self._plan}
        told |= self._advice(self._plan, told)
        self._context.execute()
        if self._directive.get("needs_scaffolder") or self._plan.get("needs_scaffolder"):
            told["scaffold"] = self._ask("scaffolder", told, acts=True).answer("scaffold_v1")
        self._task = told

    def _work(self) -> None:
        feedback = {"report": self._report, "feedback": self._review["feedback"]} if self._review else {}
        self._worker = self._ask("worker", {**self._task, **feedback}, acts=True)
        self._report = self._worker.answer("worker_report_v1")
        self._run.record("worker.report", self._report)
        self._context.verify(self._report)

    def _verify(self) -> None:
        told = {"directive": self._directive, "plan": self._plan, "report": self._report}
        reviewer = self._ask("reviewer", told)
        self._refuse_self_review(reviewer)
        self._review = reviewer.answer("review_result_v1")
        if self._review["verdict"] == "pass":
            self._reply = self._report["output"] if self._report else ""
            self._context.complete(self._review)
        else:
            self._context.note("review.failed", self._review)
            self._rework(self._review["feedback"])

    def _rework(self, feedback: str) -> None:
        if self._reworked < self._limits.max_rework:
            self._reworked += 1
            self._context.execute()
            return
        self._reply = f"No report passed the review in {self._reworked + 1} attempts; the last feedback: {feedback}"
        self._context.need_human(self._reply)

    # --- the roles ---------------------------------------------------------------------------------------------------

    def _ask(self, role: str, told: Object, *, acts: bool = False, plans: bool = False) -> Conversation:
        return Conversation(self._run, role, {"request": self._prompt, **told}, self._limits, acts=acts, plans=plans)

    def _advice(self, message: Object, told: Object) -> dict[str, Any]:
        if not message.get("needs_advisor"):
            return {}
        return {"advice": self._ask("advisor", told).answer("advice_v1")}

    def _refuse_self_review(self, reviewer: Conversation) -> None:
        role = reviewer.agent.role
        if self._worker and self._worker.agent.role == role:
            raise Failed("BINDING_INVALID", f"the {role} would review its own output; the reviewer has to be another")
