"""The flow plan-and-run: what it writes to its context, what runs side by side, and how each failure ends."""

import json
import threading
from typing import ClassVar

import attrs
import pytest
from persons import approving

from deedbook import Failed
from deedbook.format.errors import DeedbookError
from deedbook_approvals.answering import answer
from deedbook_flow_runcontext.approval_tool import PlanApproval
from deedbook_flow_runcontext.execution import PlanExecution
from deedbook_testing import Example, FlowContract, ToolContract


def skill(lab, name, steps=(), *, allows="find count look erase", more=""):
    """Write a skill that lists *steps* as JSON objects."""
    front = f"name: {name}\ndescription: Does {name}.\nallowed-tools: {json.dumps(allows.split())}\ntriggers: [{name}]"
    listed = f"\nmetadata: {json.dumps({'deedbook': {'steps': list(steps)}})}" if steps else ""
    lab.write(f"skills/{name}/SKILL.md", f"---\n{front}{listed}{more}\n---\n# {name}\n")


def step(name, **more):
    return {"id": name, "description": f"do {name}", **more}


@pytest.fixture
def plans(lab):
    """Declare the flow, four tools that answer with their arguments, and a skill for planned work."""
    for name in ("find", "count", "look"):
        lab.tool(name, lambda args, ctx, name=name: {"paths": [name], "given": args})
    lab.tool("erase", lambda args, ctx: {"erased": True}, effects="write", tags=["destructive"])
    lab.model(lambda request, ctx: Failed("NO_MODEL", "no role was expected"))
    configure(lab)
    skill(lab, "do")
    return lab


def configure(lab, **settings):
    entry = {
        "summary": "Plan and run.",
        "handler": {"flow": "plan-and-run"},
        **({"with": settings} if settings else {}),
    }
    lab.settings(abilities={"planned": entry}, profile="lab", profiles={"lab": {"flow": "planned"}})


def run(lab, prompt="do the inventory"):
    with lab.session("run") as session:
        return session.run(prompt)


def notes(context):
    return {each.data["step"]: each.data["state"] for each in context.log if each.event_type == "plan_step"}


# --- the way of a run -------------------------------------------------------------------------------------------------


def test_plan_of_the_skills_is_compiled_executed_and_verified(plans):
    skill(plans, "inventory", [step("find", ability="find", args={"pattern": "*"}),
                               step("count", ability="count", inputs={"paths": {"step": "find", "pointer": "/paths"}}),
                               step("look", ability="look", depends_on=["find"])])  # fmt: skip
    context = run(plans).value.context
    assert context.state == "COMPLETED"
    assert context.clarification == {"intent": "do the inventory", "constraints": [], "schema_version": "v1"}
    assert context.scope["skill"] == "do"
    assert context.plan["parallel_groups"] == [["inventory/find"], ["inventory/count", "inventory/look"]]
    assert [each["name"] for each in context.plan["skills_included"]] == ["inventory"]
    assert notes(context) == {f"inventory/{name}": "completed" for name in ("find", "count", "look")}
    assert context.report["steps_completed"] == ["inventory/find", "inventory/count", "inventory/look"]
    assert context.verification == {"verdict": "pass", "checks": ["coverage"], "schema_version": "v1"}
    given = {each.payload["tool_name"]: each.payload["args"] for each in plans.all("tool.call")}
    assert given == {"find": {"pattern": "*"}, "count": {"paths": ["find"]}, "look": {}}
    assert [each.payload["name"] for each in plans.all("run.branch")] == [
        "inventory/find", "inventory/count", "inventory/look",
    ]  # fmt: skip


def test_reply_is_the_result_that_no_other_step_takes(plans):
    plans.tool("count", lambda args, ctx: {"text": "three files"})
    skill(plans, "inventory", [step("find", ability="find"), step("count", ability="count", depends_on=["find"])])
    assert run(plans).value.text == "three files"


def test_steps_of_a_group_run_side_by_side(plans):
    both = threading.Barrier(2, timeout=20)
    for name in ("count", "look"):
        plans.tool(name, lambda args, ctx: both.wait() * 0)
    skill(plans, "inventory", [step("a", ability="count"), step("b", ability="look")])
    assert run(plans).value.state == "COMPLETED"


def test_skill_of_the_run_is_the_plan_if_no_other_one_fits(plans):
    plans.role("worker")
    plans.model(lambda request, ctx: worker(request, "do"))
    context = run(plans, "do").value.context
    assert (context.state, context.plan["order"], context.reply) == ("COMPLETED", ["do"], "did do")


def worker(request, *names, **more):
    """Answer as a worker that has completed the step of its hand-off."""
    return json.dumps({"output": f"did {names[0]}", "steps_completed": [*names], "schema_version": "v1", **more})


# --- roles ------------------------------------------------------------------------------------------------------------


def speak(lab, **lines):
    """Let each role answer with its lines in turn; return what the roles were told."""
    told = []
    left = {role: [*each] for role, each in lines.items()}
    for role in lines:
        lab.role(role)

    def answer(request, ctx):
        told.append((request["role"], json.loads(request["messages"][-1]["content"])))
        return json.dumps(left[request["role"]].pop(0))

    lab.model(answer)
    return told


def planned(*steps, version="v2"):
    return {"steps": [*steps], "risks": [], "needs_advisor": False, "schema_version": version}


DIRECTIVE = {"intent": "take the inventory", "constraints": ["be quick"], "schema_version": "v1"}


def test_lead_clarifies_the_request(plans):
    speak(plans, lead=[DIRECTIVE])
    skill(plans, "inventory", [step("a", ability="find")])
    context = run(plans, "do").value.context
    assert (context.state, context.clarification) == ("COMPLETED", DIRECTIVE)
    assert context.scope["constraints"] == ["be quick"]


def test_planner_plans_and_its_plan_is_executed(plans):
    configure(plans, plan_by="planner")
    told = speak(plans, planner=[planned(step("a", ability="find"), step("b", ability="look", depends_on=["a"]))])
    context = run(plans, "do").value.context
    assert (context.state, context.report["steps_completed"]) == ("COMPLETED", ["a", "b"])
    assert {each["name"] for each in told[0][1]["tools"]} == {"find", "count", "look", "erase"}


def test_plan_v1_of_a_planner_is_upcast_and_its_steps_are_work_of_the_worker(plans):
    configure(plans, plan_by="planner")
    report = {"output": "done", "steps_completed": ["a"], "schema_version": "v1"}
    told = speak(plans, planner=[planned({"id": "a", "description": "do"}, version="v1")], worker=[report])
    context = run(plans, "do").value.context
    assert (context.state, context.reply, context.plan["schema_version"]) == ("COMPLETED", "done", "v2")
    assert told[1][1]["plan"]["steps"] == [{"id": "a", "description": "do"}]


BROKEN_V1 = {
    "cycle": [step("a", depends_on=["b"]), step("b", depends_on=["a"])],
    "orphan": [step("a", depends_on=["x"])],
    "two of one id": [step("a"), step("a")],
}
BROKEN_V2 = {
    "unknown ability": [step("a", ability="fly")],
    "outside the scope": [step("a", ability="planned")],
    "unknown skill": [step("a", skill="fly")],
}


@pytest.mark.parametrize(
    ("steps", "version"),
    [*((steps, "v1") for steps in BROKEN_V1.values()), *((steps, "v2") for steps in (BROKEN_V1 | BROKEN_V2).values())],
    ids=[*(f"{name}, v1" for name in BROKEN_V1), *(f"{name}, v2" for name in BROKEN_V1 | BROKEN_V2)],
)
def test_planner_may_mend_a_plan_that_is_refused_and_otherwise_nothing_runs(plans, steps, version):
    configure(plans, plan_by="planner")
    bad, good = planned(*steps, version=version), planned(step("a", ability="find"))
    told = speak(plans, planner=[bad, good])
    assert run(plans, "do").value.state == "COMPLETED"
    assert "was refused" in told[1][1]["violation"]
    speak(plans, planner=[bad, bad])
    refused = run(plans, "do")
    assert refused.error.code == "MALFORMED_AGENT_MESSAGE"
    assert not plans.all("tool.call")
    assert plans.payload("context.failed")["reason"].startswith("MALFORMED_AGENT_MESSAGE: ")
    assert [each.payload["event_type"] for each in plans.all("context.noted")] == ["finding"] * 2


def test_plan_of_the_skills_that_is_refused_runs_nothing(plans):
    skill(plans, "inventory", [step("a", ability="find"), step("b", ability="look", depends_on=["c"])])
    refused = run(plans)
    assert refused.error.code == "PLAN_REFUSED"
    assert "no step is called" in plans.payload("context.failed")["reason"]
    assert not plans.all("tool.call")
    assert not plans.all("context.planned")


def test_worker_that_does_not_name_its_step_is_told_so(plans):
    plans.role("worker")
    lines = [worker(None, "other"), worker(None, "help")]
    plans.model(lambda request, ctx: lines.pop(0))
    skill(plans, "help")
    assert run(plans, "do and help").value.state == "COMPLETED"
    assert not lines


def test_worker_has_the_tools_of_the_skill_of_its_step_only(plans):
    offered = []
    plans.role("worker")

    def answer(request, ctx):
        offered.append({tool["name"] for tool in request.get("tools", ())})
        return worker(request, "help")

    plans.model(answer)
    skill(plans, "help", allows="find")
    run(plans, "do and help")
    assert offered == [{"find"}]


# --- failures ---------------------------------------------------------------------------------------------------------


def fail(code="BROKEN", **more):
    def raises(args, ctx):
        raise Failed(code, "it broke", **more)

    return raises


def test_optional_step_that_fails_is_reported_as_skipped(plans):
    plans.tool("look", fail())
    plans.tool("count", lambda args, ctx: args)
    default = {"step": "look", "pointer": "/paths", "default": ["none"]}
    no_default = {"step": "look", "pointer": "/paths"}
    skill(plans, "inventory", [
        step("look", ability="look", optional=True), step("count", ability="count", inputs={"paths": default}),
        step("more", ability="find", optional=True, inputs={"paths": no_default}),
    ])  # fmt: skip
    context = run(plans).value.context
    assert context.state == "COMPLETED"
    assert context.report["steps_skipped"] == ["inventory/look", "inventory/more"]
    assert json.loads(context.reply) == {"paths": ["none"]}
    reasons = [each.data.get("reason") for each in context.log if each.data["state"] == "skipped"]
    assert reasons[0] == "BROKEN: it broke"
    assert 'step "inventory/look", which was skipped' in reasons[1]


@pytest.mark.parametrize(("more", "state"), [({}, "FAILED"), ({"halt_on_failure": True}, "HALTED")])
def test_required_step_that_fails_ends_the_run_before_later_groups(plans, more, state):
    plans.tool("find", fail())
    skill(plans, "inventory", [step("a", ability="find", **more), step("b", ability="look"),
                               step("c", ability="count", depends_on=["a"])])  # fmt: skip
    context = run(plans).value.context
    assert context.state == state
    assert 'step "inventory/a"' in context.reason
    assert "BROKEN: it broke" in context.reason
    assert notes(context) == {"inventory/a": "failed", "inventory/b": "completed"}


def test_input_that_a_result_lacks_fails_the_step(plans):
    missing = {"step": "a", "pointer": "/nothing"}
    skill(plans, "inventory", [step("a", ability="find"), step("b", ability="look", inputs={"x": missing})])
    context = run(plans).value.context
    assert context.state == "FAILED"
    assert 'INPUT_MISSING: "x" comes from /nothing of step "inventory/a", which lacks it' in context.reason


@pytest.mark.parametrize("optional", [False, True])
def test_unknown_outcome_needs_a_person(plans, optional):
    plans.tool("find", fail(lost=True), effects="write")
    skill(plans, "inventory", [step("a", ability="find", optional=optional), step("b", ability="look")])
    context = run(plans).value.context
    assert (context.state, context.waiting) == ("NEEDS_HUMAN", "EXECUTING")
    assert notes(context) == {"inventory/a": "unknown", "inventory/b": "completed"}


def test_tool_that_vanishes_after_compiling_fails_with_the_cause(plans):
    plans.tool("look", fail("SERVER_GONE"))
    skill(plans, "inventory", [step("a", ability="find"), step("b", ability="look", depends_on=["a"])])
    context = run(plans).value.context
    assert context.state == "FAILED"
    assert context.reason == 'step "inventory/b" failed: SERVER_GONE: it broke'


def test_tool_that_another_charter_lacks_fails_with_the_cause():
    """The plan of a context is older than the abilities in scope, as after a change of the workspace."""
    failures = []

    class Gone:
        context = type("Notes", (), {"note": lambda self, event_type, data: failures.append(data)})()

        def parallel(self, branches):
            return [each.work(self) for each in branches]

        def call(self, ability, args):
            raise Failed("TOOL_NOT_FOUND", f"no ability {ability!r} is declared")

    execution = PlanExecution(Gone(), {"steps": [step("a", ability="find")]}, {}, None)
    execution.execute()
    assert failures == [
        {"step": "a", "group": 1, "state": "failed", "reason": "TOOL_NOT_FOUND: no ability 'find' is declared"}
    ]


def test_skill_whose_tool_is_outside_the_scope_is_excluded_with_the_reason(plans):
    skill(plans, "inventory", [step("a", ability="find")])
    skill(plans, "other", allows="find planned")
    context = run(plans, "do the inventory and other").value.context
    assert context.plan["skills_excluded"][0]["missing_tools"] == ["planned"]
    assert context.state == "COMPLETED"


# --- approvals --------------------------------------------------------------------------------------------------------


def test_tagged_step_without_an_ability_that_asks_needs_a_person(plans):
    skill(plans, "inventory", [step("a", ability="find", tags=["approval-gate"])])
    context = run(plans).value.context
    assert context.state == "NEEDS_HUMAN"
    assert "APPROVAL_MISSING" in context.reason
    assert not plans.all("tool.call")


@pytest.fixture
def did():
    """Hold what the tools did."""
    return []


@pytest.fixture
def gated(plans, did):
    """Declare an ability that asks a person, and a plan whose second group waits for one."""
    approving(plans)
    plans.settings(abilities={
        "approve": {"summary": "Ask.", "handler": {"tool": "plan-approval"}, "tags": ["approval-gate"]},
    })  # fmt: skip
    for name in ("find", "count", "look"):
        plans.tool(name, lambda args, ctx, name=name: did.append(name) or {"n": len(did)}, effects="write")
    configure(plans, approval="approve")
    skill(plans, "do", allows="find count look approve")
    skill(plans, "inventory", [
        step("a", ability="find"),
        step("b", ability="count", tags=["approval-gate"], depends_on=["a"], args={"n": 1}),
        step("c", ability="look", depends_on=["a"]),
    ], allows="find count look")  # fmt: skip
    return plans


def suspend(lab):
    with lab.session("run") as session:
        waits = session.run("do the inventory")
    assert waits.error.code == "NEEDS_HUMAN"
    return session.id


def answered(lab, session, *, approve):
    identity = lab.all("approval.requested", session)[-1].payload["approval"]
    answer(lab.path, identity, approve=approve, catalogue=lab.catalogue())
    with lab.kernel() as kernel, kernel.resume(session) as again:
        got = again.go_on()
        again.end(ok=True, reason="done")
        return got


def test_gated_step_waits_for_a_person_while_the_others_of_its_group_run(gated, did):
    session = suspend(gated)
    assert did == ["find", "look"]
    asked = gated.one("approval.requested", session).payload
    assert asked["args"] == {
        "step": "inventory/b", "description": "do b", "tags": ["approval-gate"], "ability": "count", "args": {"n": 1},
    }  # fmt: skip
    context = answered(gated, session, approve=True).value.context
    assert (context.state, did) == ("COMPLETED", ["find", "look", "count"])
    assert notes(context) == {f"inventory/{name}": "completed" for name in "abc"}


def test_gate_without_an_ability_asks_and_does_nothing_else(gated, did):
    skill(gated, "inventory", [
        step("a", ability="find"), step("ok", tags=["approval-gate"], depends_on=["a"]),
        step("b", ability="count", depends_on=["ok"]),
    ], allows="find count")  # fmt: skip
    session = suspend(gated)
    assert did == ["find"]
    context = answered(gated, session, approve=True).value.context
    assert (context.state, did) == ("COMPLETED", ["find", "count"])
    assert "skill" not in context.plan["steps"][1]


def test_gated_step_that_is_refused_fails_and_does_nothing(gated, did):
    session = suspend(gated)
    context = answered(gated, session, approve=False).value.context
    assert (context.state, did) == ("FAILED", ["find", "look"])
    assert 'step "inventory/b" failed: ' in context.reason


def test_interrupted_plan_is_resumed_and_does_no_step_twice(plans, did):
    skill(plans, "inventory", [
        step("a", ability="find"), step("b", ability="count", depends_on=["a"]),
        step("c", ability="look", depends_on=["a"]), step("d", ability="find", args={"n": 2}, depends_on=["b", "c"]),
    ], allows="find count look")  # fmt: skip
    interrupts = [True]

    def find(args, ctx):
        if args.get("n") == 2 and interrupts and interrupts.pop():
            raise KeyboardInterrupt
        did.append(f"find {args.get('n', 1)}")
        return {}

    plans.tool("find", find, effects="read")
    for name in ("count", "look"):
        plans.tool(name, lambda args, ctx, name=name: did.append(name) or {}, effects="write")
    with pytest.raises(KeyboardInterrupt), plans.session("run") as session:
        session.run("do the inventory")
    assert sorted(did) == ["count", "find 1", "look"]
    with plans.kernel() as kernel, kernel.resume(session.id) as again:
        context = again.go_on().value.context
        again.end(ok=True, reason="done")
    assert sorted(did) == ["count", "find 1", "find 2", "look"]
    assert context.state == "COMPLETED"
    assert context.report["steps_completed"] == [f"inventory/{name}" for name in "abcd"]
    assert len(plans.all("context.planned", session)) == 1


def test_ability_that_asks_nobody_is_no_approval(gated, did):
    gated.tool("nod", lambda args, ctx: {"approved": args["step"]})
    configure(gated, approval="nod")
    skill(gated, "do", allows="find count look nod")
    context = run(gated, "do the inventory").value.context
    assert (context.state, sorted(did)) == ("NEEDS_HUMAN", ["find", "look"])
    assert "APPROVAL_MISSING" in context.reason


def test_tag_that_the_ability_has_itself_is_asked_about_once(gated, did):
    gated.settings(abilities={"count": {"tags": ["destructive"]}})
    skill(gated, "inventory", [step("b", ability="count", tags=["destructive"])], allows="count")
    session = suspend(gated)
    assert gated.one("approval.requested", session).payload["name"] == "count"
    assert answered(gated, session, approve=True).value.state == "COMPLETED"
    assert did == ["count"]


class TestPlanAndRun(FlowContract):
    name = "plan-and-run"
    rooms = tuple(
        f"deedbook.{name}"
        for name in ("call", "charter", "cli", "format", "kernel", "ledger", "maintenance", "policy", "workspace")
    )
    examples = (Example("do the inventory", gives="found"), Example("nothing that fits", fails="NO_SKILL"))
    bad_settings = ({"matcher": "embeddings"}, {"plan_by": "nobody"}, {"max_turns": 0})

    def prepare(self, lab):
        lab.tool("find", lambda args, ctx: "found")
        lab.model(lambda request, ctx: "")
        skill(lab, "do", allows="find")
        skill(lab, "inventory", [step("a", ability="find")], allows="find")


class TestPlanApproval(ToolContract):
    name = "plan-approval"
    rooms = TestPlanAndRun.rooms
    ability: ClassVar = {"tags": ["approval-gate"]}
    examples = (Example({"step": "a", "description": "", "tags": []}, fails="NEEDS_HUMAN"),)


@pytest.mark.parametrize("kind", ["tool", "flow"])
def test_question_that_asks_nobody_is_refused_at_the_start_and_at_the_call(lab, kind, monkeypatch):
    lab.settings(abilities={"ask": {"summary": "Ask a person.", "handler": {kind: "plan-approval"}}})
    with pytest.raises(DeedbookError) as problem, lab.kernel():
        pass
    assert "no call of ask asks one; add to the ability: tags: [approval-gate]" in str(problem.value)
    monkeypatch.setattr(PlanApproval, "spec", attrs.evolve(PlanApproval.spec, check=None))
    with lab.session() as session:
        found = session.call("ask", {"step": "a", "description": "", "tags": []})
    assert found.error.code == "APPROVAL_MISSING"
