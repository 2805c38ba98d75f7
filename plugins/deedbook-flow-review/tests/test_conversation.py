"""One role's conversation: its messages, its tools, and what happens when its message is not what it has to be."""

import json

import pytest

from deedbook.contract import Failed

MALFORMED = "MALFORMED_AGENT_MESSAGE"


def test_system_message_is_the_role_and_the_skill(stage):
    run = stage()
    run.play()
    assert run.last("lead")[0] == {
        "role": "system",
        "content": "You are the lead.\n\n# Skill: greet\n\n# Greet\n\nUse echo.\n",
    }


def test_system_message_without_a_skill_is_the_role(stage, lines):
    run = stage(skill=None, worker=[{**lines.report, "tool_calls_made": []}])
    run.play()
    assert run.last("reviewer")[0]["content"] == "You are the reviewer.\n"


def test_tools_are_offered_to_the_worker_only(stage):
    run = stage()
    run.play()
    assert {role for role, request in run.requests if "tools" in request} == {"worker"}


# --- tools ------------------------------------------------------------------------------------------------------------


def test_tool_results_go_back_as_json_under_their_ids(stage, lines):
    calls = [{"id": f"t{n}", "name": "echo", "args": {"n": n}} for n in (1, 2)]
    run = stage(worker=[{"calls": calls}, lines.report], tools={"echo": {"text": "Grüße"}})
    run.play()
    assert run.last("worker")[2:] == [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": '{"text":"Grüße"}', "tool_call_id": "t1"},
        {"role": "tool", "content": '{"text":"Grüße"}', "tool_call_id": "t2"},
    ]
    assert run.used == [("worker", "echo", {"n": 1}), ("worker", "echo", {"n": 2})]


@pytest.mark.parametrize("code", ["TOOL_NOT_ALLOWED", "GATE_DENIED", "SCHEMA_VIOLATION", "TOOL_ERROR", "NO_SUCH_FILE"])
def test_tool_failure_is_told_to_the_worker(stage, code):
    run = stage(tools={"echo": Failed(code, "not this way")})
    assert run.play().state == "COMPLETED"
    assert json.loads(run.last("worker")[-1]["content"]) == {"error": {"code": code, "message": "not this way"}}


def test_tool_that_needs_a_human_ends_the_work(stage, lines):
    calls = [{"id": "t1", "name": "wipe", "args": {}}, {"id": "t2", "name": "echo", "args": {}}]
    run = stage(worker=[{"calls": calls}, lines.report], tools={"wipe": Failed("NEEDS_HUMAN", "a person looks first")})
    result = run.play()
    assert (result.state, result.report, result.verification) == ("NEEDS_HUMAN", None, None)
    assert result.reply == "NEEDS_HUMAN: a person looks first"
    assert [name for _, name, _ in run.used] == ["wipe"]
    assert run.folded().reason == "NEEDS_HUMAN: a person looks first"


@pytest.mark.parametrize(
    ("code", "state"), [("APPROVAL_REFUSED", "FAILED"), ("CANCELLED", "HALTED"), ("LEDGER_BROKEN", "FAILED")]
)
def test_tool_failure_that_no_role_can_mend_ends_the_run(stage, code, state):
    run = stage(tools={"echo": Failed(code, "over")})
    assert run.fails().code == code
    assert run.folded().state == state


@pytest.mark.parametrize("role", ["lead", "planner", "reviewer"])
def test_tools_of_a_role_that_does_not_act_are_not_used(stage, role, lines):
    run = stage(**{role: [lines.echo, lines.echo]}, worker=[{**lines.report, "tool_calls_made": []}])
    assert run.fails().code == MALFORMED
    assert run.used == []


@pytest.mark.parametrize("turns", [1, 4])
def test_turns_are_bounded_and_then_halt(stage, lines, turns):
    run = stage(worker=[lines.echo] * 9)
    result = run.play(max_turns=turns)
    assert (result.state, result.report) == ("HALTED", None)
    assert len(run.used) == turns
    assert run.folded().reason == result.reply
    assert result.reply.startswith("TURNS_SPENT: ")


def test_turns_suffice_when_the_last_one_is_the_report(stage, lines):
    run = stage(worker=[lines.echo, lines.echo, lines.report])
    assert run.play(max_turns=3).state == "COMPLETED"


# --- malformed messages -----------------------------------------------------------------------------------------------

WRONG = [
    "Sure! Here is the plan.",
    "{}",
    '{"intent": "", "constraints": [], "schema_version": "v1"}',
    "[1]",
    "null",
    "",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_message_is_told_and_may_be_mended(stage, lines, wrong):
    run = stage(lead=[wrong, lines.directive])
    assert run.play().state == "COMPLETED"
    _, first, *said, again = run.last("lead")
    assert said == ([{"role": "assistant", "content": wrong}] if wrong else [])
    mended = json.loads(again["content"])
    assert "lead_directive_v1" in mended.pop("violation")
    assert mended == json.loads(first["content"])


@pytest.mark.parametrize("role", ["lead", "planner", "worker", "reviewer"])
@pytest.mark.parametrize("patience", [0, 1, 2])
def test_malformed_messages_are_bounded_and_then_fail(stage, role, patience):
    run = stage(**{role: ["no"] * 9})
    assert run.fails(max_malformed=patience).code == MALFORMED
    assert [who for who, _ in run.requests].count(role) == patience + 1
    assert run.folded().state == "FAILED"
    assert run.folded().reason.startswith(MALFORMED)


def test_malformed_message_of_an_advisor_or_scaffolder_fails_as_well(stage, lines):
    asked = {**lines.directive, "needs_advisor": True}
    assert stage(lead=[asked], advisor=["hm", "hm"]).fails().code == MALFORMED
    asked = {**lines.directive, "needs_scaffolder": True}
    assert stage(lead=[asked], scaffolder=["hm", "hm"]).fails().code == MALFORMED


def test_other_failures_are_not_retried(stage):
    run = stage(lead=["no", Failed("PROVIDER_ERROR", "gone")])
    assert run.fails(max_malformed=5).code == "PROVIDER_ERROR"
    assert len(run.requests) == 2


# --- fabricated calls -------------------------------------------------------------------------------------------------


def test_report_that_invents_a_call_is_malformed_and_may_be_mended(stage, lines):
    invented = {**lines.report, "tool_calls_made": ["echo:t1", "wipe:t9"]}
    run = stage(worker=[lines.echo, invented, lines.report])
    assert run.play().report == lines.report
    violation = json.loads(run.last("worker")[-1]["content"])["violation"]
    assert "wipe:t9" in violation
    assert "the calls made are: echo:t1" in violation


def test_invented_call_stays_in_the_execution_log(stage, lines):
    run = stage(worker=[lines.report, {**lines.report, "tool_calls_made": []}])
    run.play()
    (note,) = run.folded().log
    assert [note.data] == run.folded().findings
    assert note.data["message"].startswith("tool_calls_made names echo:t1; the calls made are: none")
    assert (note.data["role"], note.data["invented"], note.data["made"]) == ("worker", ["echo:t1"], [])


def test_report_that_keeps_inventing_fails_and_is_never_recorded(stage, lines):
    run = stage(worker=[lines.report] * 2)
    assert run.fails().code == MALFORMED
    assert "worker.report" not in run.types()
    assert run.folded().report is None


@pytest.mark.parametrize("claimed", [[], ["echo"], ["echo:t1"], ["echo:t1", "echo"]])
def test_calls_may_be_named_with_or_without_their_id(stage, lines, claimed):
    run = stage(worker=[lines.echo, {**lines.report, "tool_calls_made": claimed}])
    assert run.play(max_malformed=0).state == "COMPLETED"


def test_report_without_the_list_of_calls_is_accepted(stage, lines):
    report = {key: value for key, value in lines.report.items() if key != "tool_calls_made"}
    assert stage(worker=[lines.echo, report]).play(max_malformed=0).report == report


def test_calls_of_an_earlier_attempt_are_not_made_again_by_claiming_them(stage, lines):
    run = stage(worker=[lines.echo, lines.report, lines.report], reviewer=[lines.fail])
    assert run.fails(max_malformed=0).code == MALFORMED


def test_calls_are_a_matter_of_the_roles_that_act(stage, lines):
    run = stage(lead=[{**lines.directive, "tool_calls_made": 7}])
    assert run.play(max_malformed=0).state == "COMPLETED"


def test_scaffold_that_invents_a_call_is_malformed(stage, lines):
    run = stage(
        planner=[{**lines.plan, "needs_scaffolder": True}],
        scaffolder=[{**lines.scaffold, "tool_calls_made": ["write:t1"]}] * 2,
    )
    assert run.fails().code == MALFORMED


@pytest.mark.parametrize(
    ("finish", "why"),
    [("max_tokens", "cut off at the limit of tokens"), ("safety", "the model refused to answer")],
)
def test_answer_that_is_no_message_says_why_where_the_model_does(stage, finish, why):
    run = stage(lead=[(finish, "I am sorr")] * 2)
    failure = run.fails()
    assert failure.code == MALFORMED
    assert why in str(failure)
