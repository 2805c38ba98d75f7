"""Each role's message comes from the rule and from what happened, and a request without a rule comes to nothing."""

import json

import pytest

from deedbook import Failed
from deedbook_flow_runcontext.coverage import check_coverage

ECHO = {"echo": lambda args: {"text": args["text"]}}
FILES = {
    **ECHO,
    "find": lambda args: {"paths": [f"{args['pattern']}/1", f"{args['pattern']}/2"]},
    "count": lambda args: {"total": len(args["paths"])},
}


def fails(code="TOOL_ERROR", message="no more"):
    def tool(args):
        raise Failed(code, message)

    return tool


def test_request_goes_through_all_four_roles(model, skill, hello):
    done = model.run("Please say hello to Ada", skill(hello), ECHO)
    assert done["directive"]["intent"] == "Please say hello to Ada"
    assert done["plan"]["steps"] == [{"id": "s1", "description": "Greet Ada", "depends_on": []}]
    assert done["calls"] == [{"id": "t1", "name": "echo", "args": {"text": "Hello, Ada!"}}]
    assert done["report"] == {
        "output": "Hello, Ada!",
        "steps_completed": ["s1"],
        "tool_calls_made": ["echo:t1"],
        "schema_version": "v1",
    }
    assert done["review"]["verdict"] == "pass"


def test_skill_of_anybody_is_served_alike(model, skill, hello):
    done = model.run("Say hello to Bo", skill(hello, name="someone-elses"), ECHO)
    assert done["report"]["output"] == "Hello, Bo!"


def test_same_request_gets_the_same_answer(model, skill, hello):
    assert model.run("say hello to A", skill(hello), ECHO) == model.run("say hello to A", skill(hello), ECHO)


def test_planner_derives_dependencies_and_risks_from_the_placeholders(model, skill, chain):
    plan = model.message("planner", "plan_v1", {"request": "count docs"}, skill(chain))
    assert [(step["id"], step["depends_on"]) for step in plan["steps"]] == [
        ("s1", []),
        ("s2", ["s1"]),
        ("s3", ["s1", "s2"]),
    ]
    assert plan["steps"][0]["description"] == "Use find"
    assert plan["risks"] == [
        "s2 cannot run if the result of s1 has nothing at /paths",
        "s3 cannot run if the result of s1 has nothing at /paths/0",
        "s3 cannot run if the result of s2 has nothing at /total",
    ]


def test_worker_hands_results_on_with_their_type(model, skill, chain):
    done = model.run("count docs", skill(chain), FILES)
    assert [call["args"] for call in done["calls"]] == [
        {"pattern": "docs"},
        {"paths": ["docs/1", "docs/2"]},
        {"text": "docs/1: 2", "again": [{"total": 2}]},
    ]
    assert [call["id"] for call in done["calls"]] == ["t1", "t2", "t3"]
    assert done["report"]["output"] == "docs/1: 2"


def test_worker_stops_at_an_error_and_says_what_was_done(model, skill, chain):
    done = model.run("count docs", skill(chain), {**FILES, "count": fails("TOO_LARGE", "docs/1 is too large")})
    assert done["report"]["output"] == (
        "Step s2 (count) failed with TOO_LARGE: docs/1 is too large\nSteps completed before it: s1."
    )
    assert done["report"]["steps_completed"] == ["s1"]
    assert done["report"]["tool_calls_made"] == ["find:t1", "count:t2"]
    assert done["review"]["verdict"] == "fail"
    assert done["review"]["feedback"].startswith("Not completed: s2, s3. The worker says: Step s2 (count) failed")


@pytest.fixture
def lookup():
    """Return a rule whose first two steps are optional."""
    return {
        "pattern": "look up (?P<what>[a-z]+)",
        "steps": [
            {"ability": "find", "args": {"pattern": "${what}"}, "optional": True},
            {"ability": "count", "args": {"paths": "${steps.1/paths}"}, "optional": True},
            {"ability": "echo", "args": {"text": "${what}"}},
        ],
        "answer": [
            "Looked up ${steps.3/text}.",
            "First: ${steps.1/paths/0}",
            "Not found: ${steps.1/error/code}",
            "Counted: ${steps.2/total}",
        ],
    }


def test_optional_steps_with_results_are_completed(model, skill, lookup):
    done = model.run("look up docs", skill(lookup), FILES)
    assert done["plan"]["schema_version"] == "v2"
    assert [step.get("optional", False) for step in done["plan"]["steps"]] == [True, True, False]
    assert done["report"]["output"] == "Looked up docs.\n\nFirst: docs/1\n\nCounted: 2"
    assert (done["report"]["steps_completed"], "steps_skipped" in done["report"]) == (["s1", "s2", "s3"], False)
    assert done["review"]["verdict"] == "pass"


def test_optional_step_may_fail_and_no_failure_is_left_out(model, skill, lookup):
    tools = {**FILES, "find": fails("GATE_DENIED", "not here")}
    done = model.run("look up docs", skill(lookup), tools)
    paragraphs = done["report"]["output"].split("\n\n")
    assert paragraphs[:2] == ["Looked up docs.", "Not found: GATE_DENIED"]
    assert paragraphs[2].startswith("Step s2 (count) failed with NO_RULE: rule 1 of skill greet: step s2 needs ")
    assert [call["name"] for call in done["calls"]] == ["find", "echo"]
    assert (done["report"]["steps_completed"], done["report"]["steps_skipped"]) == (["s3"], ["s1", "s2"])
    assert check_coverage(done["plan"], done["report"]) == ()
    assert done["review"]["verdict"] == "pass"
    assert done["review"]["feedback"].endswith("Optional steps without a result: s1, s2.")


def test_optional_step_that_the_role_is_not_offered_is_not_tried(model, skill, lookup):
    plan = {"steps": [{"id": "s1", "optional": True}, {"id": "s2", "optional": True}, {"id": "s3"}]}
    asked = {
        "messages": [{"role": "user", "content": json.dumps({"request": "look up docs", "plan": plan})}],
        "response_schema": "worker_report_v1",
        "role": "worker",
        "skill": skill(lookup),
    }
    assert [call["name"] for call in model.complete(asked)["tool_calls"]] == ["find"]
    asked["tools"] = [{"name": "echo"}]
    assert [call["name"] for call in model.complete(asked)["tool_calls"]] == ["echo"]


def test_rule_that_does_not_complete_the_request_never_passes_and_is_done_once(model, skill, lookup):
    part = skill({**lookup, "completes": False})
    done = model.run("look up docs", part, FILES)
    assert done["review"] == {"verdict": "fail", "feedback": done["report"]["output"], "schema_version": "v1"}
    brief = {key: done[key] for key in ("request", "directive", "plan", "report")}
    again, calls = model.work({**brief, "feedback": "more"}, part, FILES)
    assert (calls, again["output"], again["tool_calls_made"]) == ([], done["report"]["output"], [])


def test_result_that_only_looks_like_an_error_is_no_skipped_step(model, skill, lookup):
    odd = {"paths": ["a"], "error": {"code": "X", "message": "y"}}
    done = model.run("look up docs", skill(lookup), {**FILES, "find": lambda args: odd})
    assert done["report"]["steps_completed"] == ["s1", "s2", "s3"]


def test_required_step_that_fails_after_a_skipped_one_ends_the_work(model, skill, lookup):
    tools = {**FILES, "count": fails(), "echo": fails("GATE_DENIED", "no")}
    done = model.run("look up docs", skill(lookup), tools)
    assert done["report"]["output"] == "Step s3 (echo) failed with GATE_DENIED: no\nSteps completed before it: s1."
    assert (done["report"]["steps_completed"], done["report"]["steps_skipped"]) == (["s1"], ["s2"])
    assert done["review"]["verdict"] == "fail"


def test_worker_uses_a_tool_outside_its_scope_so_that_the_door_can_refuse_it(model, skill, hello):
    done = model.run("say hello to Ada", skill(hello), {"echo": fails("TOOL_NOT_ALLOWED", "echo is outside the scope")})
    assert "failed with TOOL_NOT_ALLOWED" in done["report"]["output"]


def test_result_that_only_looks_like_an_error_is_a_result(model, skill, hello):
    hello["answer"] = "${steps.1/error/code}"
    told = {"error": {"code": "none"}}
    assert model.run("say hello to A", skill(hello), {"echo": lambda _: told})["report"]["output"] == "none"


def test_worker_fails_where_a_result_lacks_what_the_next_step_needs(model, skill, chain):
    with pytest.raises(Failed) as caught:
        model.run("count docs", skill(chain), {**FILES, "find": lambda _: {"paths": []}})
    assert caught.value.code == "NO_RULE"
    assert str(caught.value) == (
        "rule 1 of skill greet: step s3 needs /paths/0 of step s1, but its result has nothing there"
    )


def test_worker_begins_again_at_rework(model, skill, hello):
    brief = {"request": "say hello to Ada", "plan": {"steps": [{"id": "s1"}]}, "feedback": "try again"}
    report, calls = model.work(brief, skill(hello), ECHO)
    assert (len(calls), report["output"]) == (1, "Hello, Ada!")


def test_worker_whose_report_was_refused_does_not_act_again(model, skill, hello):
    brief = {"request": "say hello to Ada", "plan": {"steps": [{"id": "s1"}]}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t1", "name": "echo", "args": {}}]},
        {"role": "tool", "tool_call_id": "t1", "content": '{"text": "Hello, Ada!"}'},
        {"role": "assistant", "content": "oops"},
        {"role": "user", "content": json.dumps({**brief, "violation": "not JSON"})},
    ]
    report = model.message("worker", "worker_report_v1", brief, skill(hello), messages)
    assert report["steps_completed"] == ["s1"]


def test_worker_of_a_new_task_in_one_conversation_uses_new_call_ids(model, skill, hello):
    brief = {"request": "say hello to Ada", "plan": {"steps": [{"id": "s1"}]}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t1", "name": "echo", "args": {}}]},
        {"role": "tool", "tool_call_id": "t1", "content": '{"text": "Hello, Ada!"}'},
        {"role": "user", "content": json.dumps({**brief, "request": "say hello to Bo"})},
    ]
    response = model.ask("worker", "worker_report_v1", brief, skill(hello), messages)
    assert response["tool_calls"] == [{"id": "t2", "name": "echo", "args": {"text": "Hello, Bo!"}}]


def test_worker_takes_the_step_ids_of_another_models_plan(model, skill, hello):
    brief = {"request": "say hello to Ada", "plan": {"steps": [{"id": "only"}]}}
    assert model.work(brief, skill(hello), ECHO)[0]["steps_completed"] == ["only"]


def test_worker_refuses_a_plan_that_is_not_the_rules(model, skill, hello):
    brief = {"request": "say hello to Ada", "plan": {"steps": [{"id": "s1"}, {"id": "s2"}]}}
    with pytest.raises(Failed, match="the plan has 2 steps, but rule 1 of skill greet has 1"):
        model.work(brief, skill(hello), ECHO)


REVIEWS = {
    "all done": (["s1", "s2"], "out", "pass", "All 2 planned steps are reported as completed"),
    "in another order": (["s2", "s1"], "out", "pass", "All 2 planned steps"),
    "one missing": (["s1"], "half", "fail", "Not completed: s2. The worker says: half"),
    "none done": ([], "", "fail", "Not completed: s1, s2. The output is empty."),
    "one invented": (["s1", "s2", "s3"], "out", "fail", "Reported, but not planned: s3."),
    "blank output": (["s1", "s2"], " \n", "fail", "The output is empty."),
}


@pytest.mark.parametrize(("completed", "output", "verdict", "feedback"), REVIEWS.values(), ids=REVIEWS)
def test_reviewer_compares_the_report_with_the_plan(model, completed, output, verdict, feedback):
    brief = {
        "request": "anything, since a reviewer needs no rule",
        "plan": {"steps": [{"id": "s1"}, {"id": "s2"}]},
        "report": {"output": output, "steps_completed": completed},
    }
    review = model.message("reviewer", "review_result_v1", brief, None)
    assert review["verdict"] == verdict
    assert review["feedback"].startswith(feedback)


def test_reviewer_of_a_plan_with_one_step_says_so(model):
    brief = {"request": "r", "plan": {"steps": [{"id": "s1"}]}, "report": {"output": "o", "steps_completed": ["s1"]}}
    review = model.message("reviewer", "review_result_v1", brief, None)
    assert review["feedback"].startswith("The planned step is reported as completed")


def test_advisor_says_that_it_has_no_view(model):
    assert model.message("advisor", "advice_v1", {"request": "r"}, None)["advice"].startswith("None:")


def test_scaffolder_says_that_nothing_was_made(model):
    assert model.message("scaffolder", "scaffold_v1", {"request": "r"}, None)["created"] == []


@pytest.mark.parametrize(("role", "schema"), [("lead", "lead_directive_v1"), ("planner", "plan_v1")])
def test_request_that_no_rule_fits_is_refused_with_the_patterns(model, skill, hello, role, schema):
    with pytest.raises(Failed) as caught:
        model.ask(role, schema, {"request": "sing"}, skill(hello))
    assert caught.value.code == "NO_RULE"
    assert str(caught.value) == (
        r"no rule of skill greet fits the request; its patterns: (?i)say hello to (?P<name>\w+)"
    )


def test_skill_without_rules_is_named(model):
    with pytest.raises(Failed, match=r"no rule of skill s fits the request; its patterns: none"):
        model.ask("lead", "lead_directive_v1", {"request": "r"}, {"name": "s", "description": "", "metadata": {}})


def test_request_without_a_skill_is_refused(model):
    with pytest.raises(Failed, match="the run has no skill") as caught:
        model.ask("lead", "lead_directive_v1", {"request": "r"}, None)
    assert caught.value.code == "NO_RULE"


@pytest.mark.parametrize("schema", [{}, {"response_schema": "poem_v1"}])
def test_schema_that_rules_cannot_fill_is_refused(model, schema):
    with pytest.raises(Failed, match="rules fill lead_directive_v1, plan_v1") as caught:
        model.complete({"messages": [{"role": "user", "content": '{"request": "r"}'}], **schema})
    assert caught.value.code == "NO_RULE"


def call(name="echo", call_id="t1"):
    return {"role": "assistant", "content": "", "tool_calls": [{"id": call_id, "name": name, "args": {}}]}


def result(content, call_id="t1"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


NOT_READ = ("say hello", '{"request": "a", "request": "b"}')
ODD = {
    "no user message": ([{"role": "system", "content": "x"}], "hold no user message"),
    "prose": ([{"role": "user", "content": "say hello"}], "not a JSON object"),
    "a list": ([{"role": "user", "content": "[]"}], "not a JSON object"),
    "a key twice": ([{"role": "user", "content": '{"request": "a", "request": "b"}'}], "not a JSON object .* twice"),
    "no request": ([{"role": "user", "content": "{}"}], 'a text "request"'),
    "no plan": ([{"role": "user", "content": '{"request": "say hello to A"}'}], "no plan with steps"),
}


@pytest.mark.parametrize(("messages", "message"), ODD.values(), ids=ODD)
def test_messages_off_the_protocol_are_refused(model, skill, hello, messages, message):
    with pytest.raises(Failed, match=message) as caught:
        model.complete({"messages": messages, "response_schema": "worker_report_v1", "skill": skill(hello)})
    assert caught.value.code == ("INTAKE_REFUSED" if messages[0]["content"] in NOT_READ else "PROVIDER_ERROR")


ODD_RESULTS = {
    "an answer to nothing": ([result("{}")], "answers 't1', which was not called"),
    "no JSON": ([call(), result("oops")], "the answer to t1 is refused"),
    "more answers than steps": (
        [call(), result("{}"), call(call_id="t2"), result("{}", "t2")],
        "2 tool results for 1 steps",
    ),
}


@pytest.mark.parametrize(("messages", "message"), ODD_RESULTS.values(), ids=ODD_RESULTS)
def test_tool_messages_off_the_protocol_are_refused(model, skill, hello, messages, message):
    brief = {"request": "say hello to A", "plan": {"steps": [{"id": "s1"}]}}
    with pytest.raises(Failed, match=message) as caught:
        model.ask("worker", "worker_report_v1", brief, skill(hello), messages)
    assert caught.value.code == ("INTAKE_REFUSED" if "refused" in message else "PROVIDER_ERROR")


def test_usage_is_estimated_from_bytes(model):
    content = '{"request": "' + "é" * 100 + '"}'
    response = model.complete(
        {"messages": [{"role": "user", "content": content}], "response_schema": "scaffold_v1", "role": "scaffolder"}
    )
    assert response["usage"] == {
        "input_tokens": -(-len(content.encode()) // 4),
        "output_tokens": -(-len(response["text"].encode()) // 4),
    }
