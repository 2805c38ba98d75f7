"""The flow `workflow` runs cycles: phases, personas side by side, policies, hooks, bounds and verdicts."""

import asyncio
import json
import threading

import pytest
from cycles import document, finding, write_cycle, write_persona, write_policy

from deedbook import ALLOW, Err, Failed, deny, transform
from deedbook.format.folds import fold
from deedbook.format.reader import read
from deedbook_inspect.replaying.cycles import CycleFold

A, B = "reviewer-ada", "reviewer-ben"
CLEAN = "review_aggregate.p0_unresolved == 0"


@pytest.fixture
def says():
    """Hold what each persona answers: findings, an object, a text, a failure, or a function of the run."""
    return {}


@pytest.fixture
def desk(lab, says):
    """Give a lab with two reviewers, each with a tool of its own, and a flow that asks `says` what they answer."""

    def examine(args, run):
        said = says.get(run.skill.name, [])
        said = said(args, run) if callable(said) else said
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            return said
        return json.dumps({"findings": said} if isinstance(said, list) else said)

    for tool in ("look", "probe"):
        lab.tool(tool, lambda args, ctx: {"seen": True}, effects="read")
    lab.flow("examine", examine)
    write_persona(lab, "reviewer/ada", "look")
    write_persona(lab, "reviewer/ben", "probe")
    return lab


def phase(name, **more):
    return {"id": name, "agents_invoked": ["reviewer/ada", "reviewer/ben"], **more}


def run(lab, request="look at a.py", cycle="check", **options):
    """Run the cycle in a session; return its context, or its error."""
    with lab.session(**options) as session:
        found = session.call(f"workflow/{cycle}", {"request": request})
        return found.error if isinstance(found, Err) else session.context(found.value["context"])


def workflow_events(lab):
    return [
        (each.type.removeprefix("workflow."), {key: value for key, value in each.payload.items() if key != "check"})
        for each in lab.events()
        if each.type.startswith("workflow.")
    ]


def notes(context):
    return [entry.data for entry in context.log if entry.event_type == "workflow_phase"]


def span_of(lab, flow):
    return next(each.span for each in lab.all("flow.call") if each.payload["flow"] == flow)


# --- the phases -------------------------------------------------------------------------------------------------------


def test_cycle_goes_through_its_phases_and_is_done(desk):
    write_cycle(desk, phase("first"), phase("second"))
    context = run(desk)
    session = desk.ledger().parent.name
    assert (context.state, [note["phase"] for note in notes(context)]) == ("COMPLETED", ["first", "second"])
    assert workflow_events(desk) == [
        ("started", {"cycle_id": "check", "session_id": session, "entry_phase": "first"}),
        ("phase_advanced", {"cycle_id": "check", "from_phase": "first", "to_phase": "second"}),
        ("completed", {"cycle_id": "check", "verdict": "done"}),
    ]
    assert {each.parent for each in desk.events() if each.type.startswith("workflow.")} == {
        span_of(desk, "workflow/check")
    }


def test_artifacts_of_the_run_state_their_schemas(desk):
    write_cycle(desk, phase("first"), phase("second"))
    context = run(desk)
    stated = [context.clarification, context.plan, context.report, context.verification]
    assert [each["schema_version"] for each in stated] == ["v1"] * 4


def test_personas_work_side_by_side_each_under_its_own_skill(desk, says):
    """Neither can end before the other has begun; each may use its own tool and not that of the other."""
    both = threading.Barrier(2, timeout=30)

    def work(mine, other):
        def go(args, run):
            both.wait()
            run.call(mine, {})
            with pytest.raises(Failed, match=other) as caught:
                run.call(other, {})
            assert caught.value.code == "TOOL_NOT_ALLOWED"
            return []

        return go

    says.update({A: work("look", "probe"), B: work("probe", "look")})
    write_cycle(desk, phase("first"))
    assert run(desk).state == "COMPLETED"
    branches = desk.all("run.branch")
    assert [each.payload["skill"] for each in branches] == [A, B]
    passes = [each for each in desk.all("flow.call") if each.payload["flow"] == "examine"]
    assert sorted(each.parent for each in passes) == sorted(each.span for each in branches)
    assert {each.parent for each in desk.all("tool.call")} <= {each.span for each in passes}


def test_phase_runs_again_until_its_advance_signal_is_true(desk, says):
    left = [[finding(severity="P0")], []]
    says[A] = lambda args, run: left.pop(0)
    write_cycle(desk, phase("first", advance_signal=CLEAN))
    context = run(desk)
    assert [(note["generation"], note["aggregate"]["p0_unresolved"]) for note in notes(context)] == [(1, 1), (2, 0)]
    assert context.state == "COMPLETED"


@pytest.mark.parametrize(
    ("tools", "confidence"),
    [(("look", "probe"), 75), (("look", "look"), 50), (("look", None), 50), ((None, None), 50)],
    ids=["two tools", "one tool run", "one invents", "both invent"],
)
def test_agreement_counts_only_with_recorded_evidence_of_its_own(desk, says, tools, confidence):
    """Each claims evidence of its own; what the ledger has beneath its pass decides."""

    def work(tool, claimed):
        def go(args, run):
            if tool:
                run.call(tool, {})
            return [finding(evidence=[claimed])]

        return go

    write_persona(desk, "reviewer/ben", "probe", "look")
    says.update({A: work(tools[0], "mine"), B: work(tools[1], "invented")})
    write_cycle(desk, phase("first"))
    [found] = notes(run(desk))[0]["aggregate"]["findings"]
    recorded = {each.span: each for each in desk.all("tool.call")}
    assert (found["confidence"], found.get("agreed")) == (confidence, [B] if confidence == 75 else None)
    assert len(found.get("evidence", [])) == len({each.payload["tool_name"] for each in recorded.values()})


def test_persona_writes_only_where_its_file_says(desk, says):
    """The denial names the file and the line of the persona; one that says nothing is not limited."""
    desk.settings(abilities={"note": {"summary": "Write a file.", "handler": {"tool": "file-write"}}})
    write_persona(desk, "reviewer/ada", "note", writes=["reports/**"])
    write_persona(desk, "reviewer/ben", "note")
    done = {}

    def work(args, run):
        for path in ("reports/a/b.md", "src/c.md"):
            claim = {"who": "a", "why": "b", "expected_hash": "", "schema_version": "v1"}
            try:
                run.call("note", {"path": path, "text": "x", **claim})
                done[run.skill.name, path] = "written"
            except Failed as problem:
                done[run.skill.name, path] = problem.code
            (desk.path / path).unlink(missing_ok=True)
        return []

    says.update({A: work, B: work})
    write_cycle(desk, {"id": "first", "agents_invoked": ["reviewer/ada"]}, name="one")
    write_cycle(desk, {"id": "second", "agents_invoked": ["reviewer/ben"]}, name="two")
    run(desk, cycle="one")
    [denied] = desk.all("tool.denied")
    run(desk, cycle="two")
    assert done == {
        (A, "reports/a/b.md"): "written", (A, "src/c.md"): "GATE_DENIED",
        (B, "reports/a/b.md"): "written", (B, "src/c.md"): "written",
    }  # fmt: skip
    assert denied.payload["by"]["rule"] == ".system/workflows/personas/reviewer/ada.md:6"
    assert "may write to reports/**, and not to 'src/c.md'" in denied.payload["reason"]


def test_personas_get_the_findings_of_the_last_run(desk, says):
    prompts = []
    says[A] = lambda args, run: prompts.append(args["prompt"]) or [finding(severity="P0")]
    write_cycle(desk, phase("first", advance_signal=CLEAN), loop_bounds={"max_generations": 2})
    run(desk)
    assert ["Open door" in each for each in prompts] == [False, True]


@pytest.mark.parametrize(
    ("bounds", "runs", "why"),
    [
        ({"max_generations": 2}, 2, "first ran 2 times in a row"),
        ({"max_phase_runs": 1}, 1, "1 phases ran"),
    ],
)
def test_bound_halts_the_loop(desk, says, bounds, runs, why):
    says[A] = [finding(severity="P0")]
    write_cycle(desk, phase("first", advance_signal=CLEAN), loop_bounds=bounds)
    context = run(desk)
    assert (context.state, len(notes(context))) == ("HALTED", runs)
    assert why in context.reply
    assert workflow_events(desk)[-1] == ("completed", {"cycle_id": "check", "verdict": "halted"})


def test_halt_signal_aborts_before_the_advance_signal_counts(desk, says):
    says[A] = [finding(severity="P0")]
    write_cycle(desk, phase("first", halt_signal="review_aggregate.p0_unresolved > 0"), phase("second"))
    context = run(desk)
    reason = "the halt_signal of first is true: review_aggregate.p0_unresolved > 0"
    assert (context.state, context.reply) == ("FAILED", f"aborted: {reason}")
    assert workflow_events(desk)[-1] == ("aborted", {"cycle_id": "check", "reason": reason})


def test_exit_condition_ends_the_cycle_before_its_last_phase(desk):
    write_cycle(desk, phase("first"), phase("second"), exit_conditions={"done": CLEAN})
    assert [note["phase"] for note in notes(run(desk))] == ["first"]
    assert workflow_events(desk)[-1] == ("completed", {"cycle_id": "check", "verdict": "done"})


def test_later_phase_gets_the_output_of_the_earlier_one(desk, says):
    plan = {"steps": [{"id": "s1", "description": "do", "depends_on": []}], "risks": [], "needs_advisor": False,
            "schema_version": "v1"}  # fmt: skip
    prompts = []
    says[A] = lambda args, run: prompts.append(args["prompt"]) or (plan if len(prompts) == 1 else [])
    write_persona(desk, "researcher/rita")
    write_cycle(
        desk,
        {"id": "first", "agents_invoked": ["reviewer/ada"], "output_schema": "plan_v1",
         "advance_signal": "artifact.steps.size() == 1"},
        {"id": "second", "agents_invoked": ["researcher/rita"], "input_schema": "plan_v1"},
    )  # fmt: skip
    says["researcher-rita"] = says[A]
    assert run(desk).state == "COMPLETED"
    assert 'Input: {"needs_advisor":false' in prompts[1]


def test_phase_that_does_not_get_the_input_that_it_takes_aborts_the_cycle(desk):
    write_cycle(desk, phase("first", input_schema="plan_v1"))
    error = run(desk)
    assert error.code == "SCHEMA_VIOLATION"
    assert "first takes plan_v1" in error.message
    assert [name for name, _ in workflow_events(desk)] == ["started", "aborted"]


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_refused_start_begins_nothing(desk):
    desk.hook("closed", "WorkflowStart", lambda subject, *_: deny("not on Fridays"))
    write_cycle(desk, phase("first"))
    error = run(desk)
    assert (error.code, error.message) == ("GATE_DENIED", "WorkflowStart: not on Fridays")
    assert workflow_events(desk) == [
        ("aborted", {"cycle_id": "check", "reason": "GATE_DENIED: WorkflowStart: not on Fridays"})
    ]
    assert "run.branch" not in desk.types()
    assert desk.verify().sound
    [cycle] = fold(CycleFold(), read(desk.ledger()))
    assert (cycle.cycle, cycle.phase, cycle.verdict) == ("check", None, "abort")


def test_hook_may_change_the_request_and_nothing_else(desk, says):
    seen = []
    says[A] = lambda args, run: seen.append(args["prompt"]) or []
    desk.hook("masked", "WorkflowStart", lambda subject, *_: transform({**subject, "request": "masked"}),
              rewrites=True)  # fmt: skip
    write_cycle(desk, phase("first"))
    assert run(desk, "card 1234").state == "COMPLETED"
    assert seen[0].startswith("masked")
    desk.hook("masked", "WorkflowStart", lambda subject, *_: transform({**subject, "cycle_id": "other"}),
              rewrites=True)  # fmt: skip
    assert "changed cycle_id; it may change the text of request" in run(desk).message


def test_refused_advance_aborts(desk):
    desk.hook(
        "closed", "PhaseAdvance", lambda subject, *_: deny("not yet") if subject["to_phase"] == "second" else ALLOW
    )
    write_cycle(desk, phase("first"), phase("second"))
    assert run(desk).reply == "aborted: PhaseAdvance: not yet"
    assert workflow_events(desk)[-1][0] == "aborted"


@pytest.mark.parametrize(
    ("to", "phases", "end"), [("third", ["first", "third"], "completed"), ("fourth", ["first"], "aborted")]
)
def test_hook_may_lead_to_another_phase_of_the_cycle(desk, to, phases, end):
    desk.hook("skip", "PhaseAdvance", lambda subject, *_: transform({**subject, "to_phase": to})
              if subject["from_phase"] == "first" else ALLOW, rewrites=True)  # fmt: skip
    write_cycle(desk, phase("first"), phase("second"), phase("third"))
    assert [note["phase"] for note in notes(run(desk))] == phases
    assert workflow_events(desk)[-1][0] == end


def test_end_is_told_to_hooks(desk):
    seen = []
    desk.hook("told", "WorkflowComplete", lambda subject, *_: seen.append(subject["verdict"]) or ALLOW)
    write_cycle(desk, phase("first"))
    run(desk)
    assert seen == ["done"]


# --- personas that do not answer --------------------------------------------------------------------------------------


BROKEN = {
    "failure": (Failed("PROVIDER_ERROR", "no model"), "PROVIDER_ERROR: no model"),
    "no JSON": ("I found nothing.", "its output is no JSON object: I found nothing."),
    "other JSON": ({"finding": []}, "its output does not fit findings_v1"),
    "no place": ([{key: value for key, value in finding().items() if key != "file"}], "has no place"),
    "in another name": ([finding(reviewer=B)], f"is said to be of {B}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_persona_without_a_sound_answer_is_counted_and_holds_the_phase(desk, says, name):
    says[A], why = BROKEN[name]
    says[B] = [finding(severity="P2")]
    write_cycle(desk, phase("first"), loop_bounds={"max_generations": 1})
    context = run(desk)
    [note] = notes(context)
    assert why in note["personas"][0]["reason"]
    assert note["aggregate"]["coverage"] == {"asked": 2, "reported": 1, "failed": [A]}
    assert len(note["aggregate"]["findings"]) == 1
    assert (context.state, note["blocked"]) == ("HALTED", f"no answer counts of {A}, and no policy allows that")


@pytest.mark.parametrize(("then", "state"), [("allow", "COMPLETED"), ("deny", "HALTED")])
def test_policy_says_whether_the_phase_goes_on_without_an_answer(desk, says, then, state):
    says[A] = Failed("PROVIDER_ERROR", "no model")
    write_policy(
        desk, "patient", "coverage-gating", {"when": "coverage.reported >= 1", "then": then, "reason": "enough"}
    )
    write_cycle(desk, phase("first"), policies=["patient"], loop_bounds={"max_generations": 1})
    assert run(desk).state == state


def test_persona_that_never_answers_is_ended_by_the_time_limit_of_the_flow(desk, says):
    async def sleep(args, ctx):
        await asyncio.Event().wait()

    desk.tool("look", sleep, effects="read", interruptible=True, timeout_ms=50)
    says[A] = lambda args, run: run.call("look", {})
    write_cycle(desk, phase("first"), loop_bounds={"max_generations": 1})
    assert notes(run(desk))[0]["personas"][0]["reason"].startswith("TOOL_TIMEOUT")


def test_hook_that_refuses_the_skill_of_a_persona_counts_as_no_answer(desk):
    desk.hook("closed", "SkillStart", lambda skill, *_: deny("away") if skill == A else ALLOW)
    write_cycle(desk, phase("first"), loop_bounds={"max_generations": 1})
    assert notes(run(desk))[0]["personas"][0]["reason"] == f"SKILL_DENIED: skill {A}: away"


# --- policies ---------------------------------------------------------------------------------------------------------


def test_policies_decide_in_order_and_each_decision_is_named(desk, says):
    says[A] = [finding(confidence=25), finding(title="Sure", confidence=100)]
    write_policy(desk, "sure", "confidence-gating",
                 {"when": "finding.confidence >= 50", "then": "allow", "reason": "sure"}, default="deny")  # fmt: skip
    write_policy(desk, "routes", "severity-routing",
                 {"match": {"severity": ["P1"]}, "then": "allow", "route": "gated", "reason": "serious"})  # fmt: skip
    write_cycle(desk, phase("first", policies=["routes"]), policies=["sure"])
    aggregate = notes(run(desk))[0]["aggregate"]
    assert [(each["title"], each["route"]) for each in aggregate["findings"]] == [("Sure", "gated")]
    assert [each["title"] for each in aggregate["suppressed"]] == ["Open door"]
    checks = {each.span: each.payload for each in desk.all("policy.check") if "subject" in each.payload}
    gated = [each.payload for each in desk.all("workflow.policy_gated")]
    assert [(each["policy_id"], each["decision"]) for each in gated] == [
        ("sure", "deny"), ("routes", "allow"), ("sure", "allow"), ("routes", "allow"),
    ]  # fmt: skip
    assert [each["check"] for each in gated] == list(checks)
    assert [each["decision"] for each in gated] == [each["decision"] for each in checks.values()]


def test_denied_persona_is_not_asked(desk, says):
    says[A] = lambda args, run: pytest.fail("it was asked")
    write_policy(desk, "nobody", "role-permissions", {"match": {"persona": [A]}, "then": "deny", "reason": "away"},
                 {"match": {"persona": [B]}, "then": "allow"})  # fmt: skip
    write_cycle(desk, phase("first"), policies=["nobody"], loop_bounds={"max_generations": 1})
    [note] = notes(run(desk))
    assert note["personas"][0] == {"persona": A, "state": "refused", "reason": "nobody: away", "findings": 0}
    assert [each.payload["name"] for each in desk.all("run.branch")] == [B]


def test_mode_changes_what_personas_are_asked_for(desk, says):
    seen = []
    says[A] = lambda args, run: seen.append(args["prompt"]) or []
    write_policy(desk, "modes", "mode-dispatch",
                 {"match": {"mode": ["headless"]}, "then": "allow", "deliverables": ["report"], "ux": "silent"},
                 default="allow")  # fmt: skip
    write_cycle(desk, phase("first"), policies=["modes"])
    run(desk, mode="headless")
    run(desk)
    assert ['deliverables: ["report"]\n\nux: "silent"' in each for each in seen] == [True, False]


def test_policy_about_generations_halts_a_loop_that_goes_in_circles(desk, says):
    says[A] = [finding(severity="P0")]
    rule = {"when": "generation.oscillates", "then": "deny", "reason": "in circles"}
    write_policy(desk, "circles", "loop-halt", rule, default="allow")
    write_cycle(desk, phase("first", advance_signal=CLEAN), policies=["circles"], loop_bounds={"max_generations": 9})
    context = run(desk)
    assert (context.reply, len(notes(context))) == ("halted: circles: in circles", 2)


# --- artifacts --------------------------------------------------------------------------------------------------------

LESSON = {"title": "Close doors", "lesson": "They stay open otherwise.", "schema_version": "v1"}


@pytest.fixture
def writing(desk, says):
    """Give the desk with a cycle whose phase writes a lesson, which one persona may write."""
    desk.settings(abilities={"file-write": {"summary": "Write.", "handler": {"tool": "file-write"}}})
    desk.settings(files={"roots": ["."]})
    template = {"id": "lesson", "schema_version": "v1", "pattern": "{cycle}-{generation}-{slug}.md",
                "folder": "lessons", "schema": "learning_v1"}  # fmt: skip
    desk.write("workflows/artifacts/lesson-template.md", document(template, "# {{ title }}"))
    write_persona(desk, "researcher/rita", "file-write")
    says["researcher-rita"] = LESSON
    write_cycle(desk, {"id": "learn", "agents_invoked": ["researcher/rita"], "artifact": "lesson"},
                loop_bounds={"max_generations": 1})  # fmt: skip
    return desk


def test_artifact_is_written_through_the_door_in_the_scope_of_its_persona(writing):
    context = run(writing, "The door")
    assert context.state == "COMPLETED"
    text = (writing.path / "lessons" / "check-1-the-door.md").read_text()
    assert text.endswith("# Close doors\n")
    assert notes(context)[0]["path"] == "lessons/check-1-the-door.md"
    [call] = [each for each in writing.all("tool.call") if each.payload["tool_name"] == "file-write"]
    [written] = [each for each in writing.all("flow.call") if each.payload["flow"] == "workflow-artifact"]
    assert (call.parent, call.payload["args"]["who"]) == (written.span, "researcher-rita")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lab: write_persona(lab, "researcher/rita"), "TOOL_NOT_ALLOWED"),
        (lambda lab: lab.write("lessons/check-1-the-door.md", "mine", system=False), "WRITE_CONFLICT"),
        (
            lambda lab: lab.policy("closed", lambda call: deny("closed") if call.effects == "write" else ALLOW),
            "GATE_DENIED",
        ),
    ],
    ids=["outside its scope", "over the file of another", "denied"],
)
def test_artifact_that_cannot_be_written_holds_the_phase(writing, change, why):
    change(writing)
    context = run(writing, "The door")
    assert (context.state, notes(context)[0]["path"]) == ("HALTED", "")
    assert f"the artifact lesson was not written: {why}" in notes(context)[0]["blocked"]


def test_output_that_does_not_fit_the_schema_holds_the_phase(writing, says):
    says["researcher-rita"] = {**LESSON, "title": ""}
    assert "does not fit findings_v1 or learning_v1" in notes(run(writing))[0]["personas"][0]["reason"]
    assert not (writing.path / "lessons").exists()


def test_persona_does_not_review_its_own_output(writing, says):
    write_cycle(
        writing,
        {"id": "learn", "agents_invoked": ["researcher/rita"], "artifact": "lesson"},
        {"id": "review", "agents_invoked": ["researcher/rita", "reviewer/ada"]},
        loop_bounds={"max_generations": 1},
    )
    context = run(writing)
    assert [each["state"] for each in notes(context)[1]["personas"]] == ["refused", "reported"]
    assert "researcher-rita would review its own output" in notes(context)[1]["personas"][0]["reason"]
    assert context.state == "HALTED"


# --- dispatch by capability -------------------------------------------------------------------------------------------


def test_a_phase_dispatches_its_personas_to_agents_by_their_cards(lab):
    """The persona limits what may be used and says who is wanted; only the persona file of the chosen agent is read."""
    answer = {
        "output": json.dumps({"findings": []}),
        "steps_completed": ["work"],
        "tool_calls_made": [],
        "schema_version": "v1",
    }
    seen = []
    lab.tool("look", lambda args, ctx: {"seen": True}, effects="read")
    lab.tool("probe", lambda args, ctx: {"seen": True}, effects="read")
    lab.model(lambda request, ctx: seen.append(request) or json.dumps(answer))
    for name, capabilities in {"iris": ["look"], "orion": ["probe", "look"], "planner": ["probe"]}.items():
        front = {"identity": name, "domain": "d", "capabilities": capabilities, "state": {"skills": "s.md"}}
        files = {".agent": json.dumps(front), "s.md": "", "persona.md": f"You are {name}."}
        for each, text in files.items():
            lab.write(f"agents/{name}/{each}", text)
    lab.settings(abilities={"ask": {"summary": "Ask.", "handler": {"flow": "ask-agent"}}})
    write_cycle(lab, {"id": "first", "agents_invoked": ["reviewer/ada", "reviewer/ben"], "flow": "ask"})
    for name, wanted in {"ada": ["look"], "ben": ["look", "probe"]}.items():
        own = {"deedbook": {"agent": {"capabilities": wanted}}}
        front = {"name": name, "description": "Looks.", "allowed-tools": ["look"], "metadata": own}
        lab.write(f"workflows/personas/reviewer/{name}.md", document({"schema_version": "v1", **front}, name))
    with lab.session() as session:
        (lab.path / ".system/agents/planner/persona.md").unlink()
        context = session.context(session.call("workflow/check", {"request": "look at a.py"}).value["context"])
    assert context.state == "COMPLETED"
    asked = {request["role"]: request for request in seen}
    assert asked.keys() == {"iris", "orion"}
    assert asked["orion"]["messages"][0]["content"].startswith("You are orion.\n\n# Skill: reviewer-ben")
    assert [tool["name"] for tool in asked["orion"]["tools"]] == ["look"]
