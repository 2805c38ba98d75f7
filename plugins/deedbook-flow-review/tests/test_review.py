"""The review loop: who is asked what, which way a run takes through its context, and how it ends."""

import json
from importlib.metadata import entry_points

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deedbook.contract import Failed
from deedbook.format.schema import foreign
from deedbook_flow_review import Review


def test_entry_point_names_the_flow():
    (found,) = entry_points(group="deedbook.flows", name="review")
    assert found.load() is Review


def test_run_goes_from_lead_to_reviewer(stage, lines):
    run = stage()
    result = run.play()
    assert run.roles == ["lead", "planner", "worker", "reviewer"]
    assert (result.reply, result.state) == ("Hello, Ada!", "COMPLETED")
    assert (result.report, result.verification) == (lines.report, lines.passed)


def test_run_leaves_its_whole_state_in_the_context(stage, lines):
    run = stage()
    run.play()
    context = run.folded()
    assert context == run.context.context
    assert (context.clarification, context.plan) == (lines.directive, lines.plan)
    assert context.scope == {
        "constraints": ["be brief"], "skill": "greet", "abilities": ["echo"], "schema_version": "v1",
    }  # fmt: skip
    assert (context.report, context.verification, context.attempts) == (lines.report, lines.passed, 1)


def test_run_records_the_report_before_it_is_verified(stage):
    run = stage()
    run.play()
    assert run.types() == [
        "context.created", "context.clarified", "context.scoped", "context.planned", "context.executing",
        "worker.report", "context.verifying", "context.completed",
    ]  # fmt: skip


def test_hand_offs_hold_what_each_role_needs_and_no_more(stage, lines):
    run = stage()
    run.play()
    request = {"request": "say hello to Ada"}
    plan = {**request, "directive": lines.directive, "plan": lines.plan}
    assert run.told("lead") == [request]
    tools = [{"name": "echo", "description": "Echo."}]
    assert run.told("planner") == [{**request, "directive": lines.directive, "tools": tools}]
    assert run.told("worker") == [plan]
    assert run.told("reviewer") == [{**plan, "report": lines.report}]


def test_roles_are_asked_for_their_schema(stage):
    run = stage()
    run.play()
    asked = {role: request["response_schema"] for role, request in run.requests}
    assert asked == {
        "lead": "lead_directive_v1",
        "planner": "plan_v1",
        "worker": "worker_report_v1",
        "reviewer": "review_result_v1",
    }


def test_scope_without_a_skill_is_empty(stage, lines):
    run = stage(skill=None, worker=[{**lines.report, "tool_calls_made": []}])
    run.play()
    assert run.folded().scope == {
        "constraints": ["be brief"], "skill": None, "abilities": [], "schema_version": "v1",
    }  # fmt: skip


# --- rework -----------------------------------------------------------------------------------------------------------


def test_failed_review_sends_the_work_back_with_its_feedback(stage, lines):
    run = stage(worker=[lines.echo, lines.report] * 2, reviewer=[lines.fail, lines.passed])
    assert run.play().state == "COMPLETED"
    first, second = run.told("worker")
    assert "feedback" not in first
    assert second == {**first, "report": lines.report, "feedback": "say her name"}
    assert run.roles[2:] == ["worker", "reviewer", "worker", "reviewer"]
    assert run.folded().attempts == 2


def test_failed_review_stays_in_the_execution_log(stage, lines):
    run = stage(worker=[lines.echo, lines.report] * 2, reviewer=[lines.fail, lines.passed])
    run.play()
    (note,) = run.folded().log
    assert (note.event_type, note.data) == ("review.failed", lines.fail)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_rework_is_bounded_and_then_needs_a_human(stage, lines, bound):
    run = stage(worker=[lines.echo, lines.report] * 9, reviewer=[lines.fail] * 9)
    result = run.play(max_rework=bound)
    assert (result.state, result.verification, result.report) == ("NEEDS_HUMAN", None, lines.report)
    assert [note.data for note in result.log] == [lines.fail] * (bound + 1)
    assert result.reply == run.folded().reason
    assert "say her name" in result.reply
    assert run.roles.count("worker") == run.folded().attempts == bound + 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verdicts=st.lists(st.booleans(), min_size=6, max_size=6), bound=st.integers(0, 5))
def test_rework_ends_with_the_first_pass_or_at_its_bound(stage, lines, verdicts, bound):
    reviews = [lines.passed if verdict else lines.fail for verdict in verdicts]
    run = stage(worker=[lines.echo, lines.report] * 6, reviewer=reviews)
    result = run.play(max_rework=bound)
    needed = verdicts.index(True) + 1 if True in verdicts[: bound + 1] else bound + 1
    assert run.folded().attempts == needed
    assert result.state == ("COMPLETED" if verdicts[needed - 1] else "NEEDS_HUMAN")


@pytest.mark.parametrize("alias", [{"reviewer": "worker"}, {"worker": "reviewer"}])
def test_role_never_reviews_its_own_output(stage, alias, lines):
    (same,) = alias.values()
    run = stage(aliases=alias, **{same: [lines.echo, lines.report, lines.passed]})
    failure = run.fails()
    assert failure.code == "BINDING_INVALID"
    assert run.context.state == "FAILED"
    assert "review_result_v1" not in [request["response_schema"] for _, request in run.requests]


# --- plans and coverage -----------------------------------------------------------------------------------------------


def plan_of(lines, *steps, **more):
    return {**lines.plan, "steps": [{"id": name, "description": "do", **rest} for name, rest in steps], **more}


UNSOUND = {
    "cycle": [("a", {"depends_on": ["b"]}), ("b", {"depends_on": ["a"]})],
    "orphan": [("a", {"depends_on": ["x"]})],
    "two of one id": [("s1", {}), ("s1", {})],
}


@pytest.mark.parametrize("steps", UNSOUND.values(), ids=UNSOUND)
def test_planner_is_told_what_is_wrong_with_its_plan_and_may_mend_it(stage, lines, steps):
    run = stage(planner=[plan_of(lines, *steps), lines.plan])
    assert run.play().state == "COMPLETED"
    (refused,) = run.folded().findings
    assert refused["role"] == "planner"
    assert refused["message"] in json.loads(run.last("planner")[-1]["content"])["violation"]
    assert run.folded().plan == lines.plan


@pytest.mark.parametrize("steps", UNSOUND.values(), ids=UNSOUND)
def test_plan_that_stays_unsound_fails_and_nobody_works(stage, lines, steps):
    run = stage(planner=[plan_of(lines, *steps)] * 2)
    assert run.fails().code == "MALFORMED_AGENT_MESSAGE"
    assert run.roles == ["lead", "planner"]
    assert (run.folded().state, run.folded().plan) == ("FAILED", None)


def test_plan_v2_names_abilities_in_scope(stage, lines):
    good = plan_of(lines, ("s1", {"ability": "echo"}), schema_version="v2")
    run = stage(planner=[plan_of(lines, ("s1", {"ability": "fly"}), schema_version="v2"), good])
    assert run.play().state == "COMPLETED"
    assert run.folded().plan == good


OPTIONAL = [("s1", {}), ("s2", {"optional": True})]


@pytest.mark.parametrize(
    ("report", "missing"),
    [
        ({"steps_completed": ["nonexistent"]}, "nonexistent"),
        ({"steps_completed": []}, "s1"),
        ({"steps_completed": ["s1"]}, "s2"),
        ({"steps_completed": ["s2"], "steps_skipped": ["s1"]}, "s1"),
    ],
)
def test_report_that_does_not_cover_the_plan_goes_back_without_a_review(stage, lines, report, missing):
    plan = plan_of(lines, *OPTIONAL, schema_version="v2")
    whole = {**lines.report, "steps_skipped": ["s2"]}
    run = stage(planner=[plan], worker=[lines.echo, {**lines.report, **report}, lines.echo, whole])
    assert run.play().state == "COMPLETED"
    assert run.roles == ["lead", "planner", "worker", "worker", "reviewer"]
    assert f'"{missing}"' in run.told("worker")[1]["feedback"]


def test_report_that_never_covers_the_plan_needs_a_person(stage, lines):
    run = stage(worker=[lines.echo, {**lines.report, "steps_completed": ["nonexistent"]}] * 2)
    assert run.play().state == "NEEDS_HUMAN"
    assert "nonexistent" in run.folded().reason
    assert "reviewer" not in run.roles


# --- advisor and scaffolder -------------------------------------------------------------------------------------------


def test_nobody_else_is_asked_without_a_demand(stage):
    run = stage()
    run.play()
    assert not {"advisor", "scaffolder"} & set(run.roles)


def test_advisor_on_the_directive_speaks_to_the_planner(stage, lines):
    directive = {**lines.directive, "needs_advisor": True}
    run = stage(lead=[directive], advisor=[lines.advice])
    run.play()
    assert run.roles == ["lead", "advisor", "planner", "worker", "reviewer"]
    assert run.told("advisor") == [{"request": "say hello to Ada", "directive": directive}]
    assert run.told("planner")[0]["advice"] == lines.advice
    assert "advice" not in run.told("worker")[0]


def test_advisor_on_the_plan_speaks_to_the_worker_in_every_attempt(stage, lines):
    plan = {**lines.plan, "needs_advisor": True}
    run = stage(
        planner=[plan],
        advisor=[lines.advice],
        worker=[lines.echo, lines.report] * 2,
        reviewer=[lines.fail, lines.passed],
    )
    run.play()
    assert run.roles[:4] == ["lead", "planner", "advisor", "worker"]
    assert run.told("advisor") == [{"request": "say hello to Ada", "directive": lines.directive, "plan": plan}]
    assert [told["advice"] for told in run.told("worker")] == [lines.advice] * 2
    assert "advice" not in run.told("reviewer")[0]


@pytest.mark.parametrize("where", ["lead", "planner"])
def test_scaffolder_prepares_once_before_the_work(stage, lines, where):
    message = {**(lines.directive if where == "lead" else lines.plan), "needs_scaffolder": True}
    run = stage(
        **{where: [message]},
        scaffolder=[lines.scaffold],
        worker=[lines.echo, lines.report] * 2,
        reviewer=[lines.fail, lines.passed],
    )
    run.play()
    assert run.roles == ["lead", "planner", "scaffolder", "worker", "reviewer", "worker", "reviewer"]
    assert [told["scaffold"] for told in run.told("worker")] == [lines.scaffold] * 2


def test_scaffolder_acts_while_the_context_is_executing(stage, lines):
    scaffold = {**lines.scaffold, "tool_calls_made": ["echo:t1"]}
    run = stage(planner=[{**lines.plan, "needs_scaffolder": True}], scaffolder=[lines.echo, scaffold])
    run.play()
    assert run.used[0] == ("scaffolder", "echo", {"text": "Hello, Ada!"})
    assert run.states["scaffolder"] == "EXECUTING"


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["lead", "planner", "worker", "reviewer"])
@pytest.mark.parametrize("code", ["PROVIDER_ERROR", "NO_RULE", "GATE_DENIED"])
def test_model_failure_ends_in_failed_and_is_raised(stage, role, code):
    run = stage(**{role: [Failed(code, "no answer", retryable=True)]})
    failure = run.fails()
    assert (failure.code, str(failure), failure.retryable) == (code, "no answer", True)
    assert (run.folded().state, run.folded().reason) == ("FAILED", f"{code}: no answer")


@pytest.mark.parametrize("role", ["lead", "planner", "worker", "reviewer"])
def test_model_call_that_a_person_has_to_allow_needs_a_human(stage, role):
    run = stage(**{role: [Failed("NEEDS_HUMAN", "a person looks first")]})
    assert run.play().state == run.folded().state == "NEEDS_HUMAN"


@pytest.mark.parametrize("role", ["lead", "planner", "worker", "reviewer"])
def test_cancelled_run_is_halted_and_raised(stage, role):
    run = stage(**{role: [Failed("CANCELLED", "interrupted")]})
    assert run.fails().code == "CANCELLED"
    assert run.folded().state == "HALTED"


@pytest.mark.parametrize("wrong", [{"max_rework": -1}, {"max_turns": 0}, {"max_malformed": "1"}, {"max_reworks": 1}])
def test_settings_that_are_wrong_are_refused_by_their_schema(wrong):
    assert foreign(Review.spec.settings, place="settings").violations(wrong)
