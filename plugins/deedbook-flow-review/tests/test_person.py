"""Decisions of a person in the review loop: about the tagged steps of a plan, and about a report that never passes."""

import json

import pytest
from persons import approving

from deedbook import Failed
from deedbook.format.context import ContextFold
from deedbook.format.folds import fold
from deedbook_approvals.answering import answer
from deedbook_flow_runcontext.context_view import ContextView

GATE = {"id": "look", "description": "a person looks", "tags": ["approval-gate"]}
WRITE = {
    "id": "s1",
    "description": "write the note",
    "ability": "note",
    "tags": ["destructive"],
    "depends_on": ["look"],
}
PASS = {"verdict": "pass", "feedback": "as planned", "schema_version": "v1"}
FAIL = {"verdict": "fail", "feedback": "say her name", "schema_version": "v1"}


def plan(*steps):
    return {"steps": list(steps), "risks": [], "needs_advisor": False, "schema_version": "v2"}


def report(*completed):
    return {
        "output": "noted", "steps_completed": list(completed), "tool_calls_made": ["note"], "schema_version": "v1",
    }  # fmt: skip


@pytest.fixture
def loop(lab):
    """Return a lab with the review loop: its roles say what ``said`` has, its worker writes a note first."""
    lab.did, lab.told = [], []
    lab.said = {
        "lead": {"intent": "note", "constraints": [], "needs_advisor": False, "schema_version": "v1"},
        "planner": plan(GATE, WRITE),
        "worker": report("s1"),
        "reviewer": PASS,
    }

    def speak(request, ctx):
        first = next(each for each in request["messages"] if each["role"] == "user")
        lab.told.append((request["role"], json.loads(first["content"])))
        if request["role"] == "worker" and request["messages"][-1]["role"] == "user":
            return [{"id": "c1", "name": "note", "args": {}}]
        return json.dumps(lab.said[request["role"]])

    lab.model(speak)
    for role in lab.said:
        lab.role(role)
    lab.tool("note", lambda args, ctx: lab.did.append("note") or {}, effects="write")
    lab.skill("write", allows="note", triggers="note")
    approve = {"summary": "Ask a person.", "handler": {"flow": "plan-approval"}, "tags": ["approval-gate"]}
    lab.settings(abilities={"approve": approve})
    approving(lab)
    configure(lab, approval="approve", max_rework=1)
    return lab


def configure(lab, name="review", **settings):
    review = {"summary": "Review.", "handler": {"flow": "review"}, "with": settings, "uses": ["approve"]}
    lab.settings(abilities={name: review}, profile="lab", profiles={"lab": {"flow": name}})


def begin(lab):
    with lab.session("run") as session:
        return session, session.run("note this")


def go_on(lab, session, *, approve):
    """Answer the open request of *session* as a person, and go on with its run."""
    identity = lab.all("approval.requested", session)[-1].payload["approval"]
    answer(lab.path, identity, approve=approve, catalogue=lab.catalogue())
    with lab.kernel() as kernel, kernel.resume(session.id) as again:
        result = again.go_on()
        if not again.suspended:
            again.end(ok=True, reason="done")
        return result, again.context(lab.all("flow.call", session)[0].span)


def test_tagged_plan_waits_for_a_person_and_then_the_work_is_done(loop):
    session, waits = begin(loop)
    assert (waits.error.code, loop.did) == ("NEEDS_HUMAN", [])
    context = fold(ContextFold(), loop.events(session)).latest
    assert ("policy", 'REQUIRE_REVIEW: "look", "s1" are tagged destructive, approval-gate') in [
        *ContextView(context, loop.events(session)).rows()
    ]
    assert ContextView(context, loop.events(session)).as_json()["waits_for"]["approval"]
    asked = loop.payload("approval.requested", session)
    assert (asked["name"], asked["args"]["tags"]) == ("approve", ["approval-gate", "destructive"])
    assert asked["args"]["args"] == {"steps": [GATE, WRITE]}
    result, context = go_on(loop, session, approve=True)
    assert (result.value.state, loop.did) == ("COMPLETED", ["note"])
    assert context.report["steps_completed"] == ["look", "s1"]
    assert [each.data for each in context.log if each.event_type == "plan_step"] == [
        {"step": "look", "state": "completed"}
    ]
    worker = next(told for role, told in loop.told if role == "worker")
    assert worker["plan"]["steps"] == [{**WRITE, "depends_on": []}]


def test_refused_plan_fails_and_nothing_is_done(loop):
    session, _ = begin(loop)
    result, context = go_on(loop, session, approve=False)
    assert result.error.code == "APPROVAL_REFUSED"
    assert (context.state, loop.did) == ("FAILED", [])


@pytest.mark.parametrize("settings", [{}, {"approval": "note"}])
def test_tagged_plan_needs_a_person_if_nobody_can_be_asked(loop, settings):
    configure(loop, "unattended", **settings)
    session, result = begin(loop)
    assert (result.value.state, loop.did) == ("NEEDS_HUMAN", [])
    assert "APPROVAL_MISSING" in result.value.text
    assert '"look", "s1" are tagged destructive, approval-gate' in result.value.text
    rows = dict(ContextView(result.value.context, loop.events(session)).rows())
    assert "waits for" not in rows  # its session has ended
    assert rows["reason"].startswith("APPROVAL_MISSING")


def test_call_that_cannot_be_suspended_needs_a_person(loop):
    loop.said["planner"] = plan(GATE)
    with loop.session("call") as session:
        result = session.call("review", {"prompt": "note this"})
        context = session.context(result.value["context"])
    assert (context.state, loop.did) == ("NEEDS_HUMAN", [])


def test_worker_cannot_report_the_step_of_a_person(loop):
    loop.said["worker"] = report("look", "s1")
    session, _ = begin(loop)
    result, context = go_on(loop, session, approve=True)
    assert result.error.code == "MALFORMED_AGENT_MESSAGE"
    assert 'steps_completed has "look", which the plan that you got does not have' in context.reason


# --- a gate between steps ---------------------------------------------------------------------------------------------

FIND = {"id": "find", "description": "find the place", "ability": "note"}
LATER = {**GATE, "depends_on": ["find"]}


def work_by_plan(loop, *reports):
    """Let each conversation of the worker call the tool, and report the next of *reports*, or all of its plan."""
    left = list(reports)

    def speak(request, ctx):
        first = json.loads(next(each for each in request["messages"] if each["role"] == "user")["content"])
        if request["role"] != "worker":
            return json.dumps(loop.said[request["role"]])
        if request["messages"][-1]["role"] == "user":
            loop.told.append(("worker", first))
            return [{"id": f"c{len(loop.told)}", "name": "note", "args": {}}]
        done = left.pop(0) if left else [step["id"] for step in first["plan"]["steps"]]
        return json.dumps({**report(*done), "output": " ".join(done)})

    loop.model(speak)
    loop.said["planner"] = plan(FIND, LATER, WRITE)


def test_person_is_asked_when_the_work_reaches_the_gate(loop):
    work_by_plan(loop)
    session, waits = begin(loop)
    assert (waits.error.code, loop.did) == ("NEEDS_HUMAN", ["note"])
    assert [step["id"] for step in loop.told[0][1]["plan"]["steps"]] == ["find"]
    asked = loop.payload("approval.requested", session)["args"]["args"]
    assert (asked["steps"], asked["report"]["steps_completed"]) == ([LATER, WRITE], ["find"])
    context = fold(ContextFold(), loop.events(session)).latest
    assert (context.state, context.waiting) == ("NEEDS_HUMAN", "EXECUTING")
    assert ("group 1", "completed  find  (ability note)") in [*ContextView(context, loop.events(session)).rows()]
    result, context = go_on(loop, session, approve=True)
    assert (result.value.state, result.value.text, loop.did) == ("COMPLETED", "find\ns1", ["note", "note"])
    assert context.report["steps_completed"] == ["look", "find", "s1"]
    *_, (_, told) = loop.told
    assert (told["plan"]["steps"], told["report"]["output"]) == ([{**WRITE, "depends_on": []}], "find")
    assert len({each.payload["approval"] for each in loop.all("approval.requested", session)}) == 1


def test_refused_gate_leaves_the_steps_before_it_done_and_fails_the_run(loop):
    work_by_plan(loop)
    session, _ = begin(loop)
    result, context = go_on(loop, session, approve=False)
    assert (result.error.code, context.state, loop.did) == ("APPROVAL_REFUSED", "FAILED", ["note"])


def test_person_is_not_asked_before_the_part_in_front_of_the_gate_is_done(loop):
    work_by_plan(loop, [], ["find"])
    session, waits = begin(loop)
    assert (waits.error.code, loop.did) == ("NEEDS_HUMAN", ["note", "note"])
    second = loop.told[-1][1]
    assert 'does not have "find" among steps_completed' in second["feedback"]
    result, context = go_on(loop, session, approve=True)
    assert (result.value.state, context.attempts) == ("COMPLETED", 2)
    assert context.report["steps_completed"] == ["look", "find", "s1"]


def test_rework_after_the_gates_asks_about_none_again(loop):
    work_by_plan(loop)
    loop.said["reviewer"] = FAIL
    session, _ = begin(loop)
    result, _ = go_on(loop, session, approve=True)
    assert result.error.code == "NEEDS_HUMAN"  # about the report
    asked = {each.payload["approval"]: each.payload["args"]["step"] for each in loop.all("approval.requested", session)}
    assert [*asked.values()] == ["plan", "report"]
    again = loop.told[-1][1]
    assert [step["id"] for step in again["plan"]["steps"]] == ["find", "s1"]


def test_each_gate_of_a_plan_is_asked_about_in_its_turn(loop):
    work_by_plan(loop)
    last = {"id": "sign", "description": "a person signs", "tags": ["approval-gate"], "depends_on": ["s1"]}
    loop.said["planner"] = plan(FIND, LATER, {**WRITE, "tags": []}, last)
    session, _ = begin(loop)
    result, _ = go_on(loop, session, approve=True)
    assert (result.error.code, loop.did) == ("NEEDS_HUMAN", ["note", "note"])
    result, context = go_on(loop, session, approve=True)
    assert (result.value.state, loop.did) == ("COMPLETED", ["note", "note"])
    assert context.report["steps_completed"] == ["look", "sign", "find", "s1"]


def test_nothing_is_done_if_no_ability_can_ask_about_a_later_gate(loop):
    work_by_plan(loop)
    configure(loop, "unattended")
    _, result = begin(loop)
    assert (result.value.state, loop.did) == ("NEEDS_HUMAN", [])
    assert "APPROVAL_MISSING" in result.value.text


def test_plan_without_tags_asks_nobody(loop):
    loop.said["planner"] = plan({"id": "s1", "description": "write the note", "ability": "note"})
    _, result = begin(loop)
    assert (result.value.state, loop.did) == ("COMPLETED", ["note"])
    assert not loop.all("approval.requested")


@pytest.mark.parametrize("approve", [True, False])
def test_person_decides_about_a_report_that_never_passes(loop, approve):
    loop.said |= {"planner": plan({"id": "s1", "description": "write the note"}), "reviewer": FAIL}
    session, waits = begin(loop)
    assert waits.error.code == "NEEDS_HUMAN"
    asked = loop.payload("approval.requested", session)["args"]
    assert (asked["step"], asked["args"]["feedback"], asked["args"]["attempts"]) == ("report", "say her name", 2)
    assert asked["args"]["report"] == report("s1")
    result, context = go_on(loop, session, approve=approve)
    if approve:
        assert (result.value.state, result.value.text) == ("COMPLETED", "noted")
        assert context.verification["checks"] == ["person"]
    else:
        assert result.error.code == "APPROVAL_REFUSED"
        assert context.state == "FAILED"
    assert len(loop.did) == 2


def test_worker_that_is_sent_back_is_not_told_that_it_did_the_step_of_a_person(loop):
    loop.said["reviewer"] = FAIL
    session, _ = begin(loop)
    result, _ = go_on(loop, session, approve=True)
    assert result.error.code == "NEEDS_HUMAN"  # about the report
    *_, again = (told for role, told in loop.told if role == "worker" and "feedback" in told)
    assert again["report"]["steps_completed"] == ["s1"]


def test_failed_role_is_raised_before_a_person_is_asked(loop):
    loop.model(lambda request, ctx: Failed("NO_MODEL", "it is switched off"))
    _, result = begin(loop)
    assert result.error.code != "NEEDS_HUMAN"
    assert not loop.all("approval.requested")
