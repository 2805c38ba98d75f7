"""Requests and answers, over HTTP: text, tools there and back, structured output, usage and prices."""

import json

import pytest

from deedbook import Failed

TOOLS = [
    {"name": "git/commit", "description": "Commit.", "schema_in": {"type": "object", "properties": {"m": {}}}},
    {"name": "echo", "schema_in": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}},
    {"name": "git.commit", "description": "Another."},
]


def user(text="Hi", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def test_text_is_answered_with_usage_and_the_model_that_answered(endpoint, say, ask):
    endpoint.plays(say.answer("Hello there!"))
    assert ask("Hi") == {
        "text": "Hello there!",
        "tool_calls": [],
        "finish_reason": "stop",
        "usage": {"input_tokens": 9, "output_tokens": 12},
        "model": "gpt-x-2026-01-01",
        "schema_version": "v2",
    }
    assert endpoint.bodies == [{"model": "gpt-x", "messages": [{"role": "user", "content": "Hi"}]}]


def test_nothing_but_what_is_documented_is_sent(endpoint, say, ask):
    endpoint.plays(say.answer())
    ask(organization="org-1", headers={"X-Team": "blue", "x-gateway": {"secret": "gateway"}})
    (sent,) = endpoint.headers
    assert {name: value for name, value in sent.items() if name not in ("host", "content-length")} == {
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": f"Bearer {say.KEY}",
        "content-type": "application/json",
        "openai-organization": "org-1",
        "user-agent": "deedbook-provider-openai",
        "x-gateway": "gw-secret-77",
        "x-team": "blue",
    }


def test_tools_are_offered_under_names_that_functions_may_have(endpoint, say, ask):
    endpoint.plays(say.answer())
    ask(user(tools=TOOLS))
    offered = {tool["function"]["name"]: tool["function"] for tool in endpoint.bodies[0]["tools"]}
    assert sorted(offered) == ["echo", "git_commit", "git_commit_2"]
    assert offered["git_commit"]["parameters"] == {"type": "object", "properties": {"m": {}}}
    assert offered["git_commit"]["description"] == "Commit.\nIts full name, which reports give, is git/commit."
    assert offered["echo"] == {"name": "echo", "parameters": {"type": "object", "properties": {}}}


def test_tool_call_comes_back_under_the_ability_s_own_name(endpoint, say, ask):
    calls = [say.call("git_commit", {"m": "one"}, "call_1"), say.call("git_commit_2", {}, "call_2")]
    endpoint.plays(say.answer(None, calls))
    made = ask(user(tools=TOOLS))
    assert made["finish_reason"] == "tool_use"
    assert made["tool_calls"] == [
        {"id": "call_1", "name": "git/commit", "args": {"m": "one"}},
        {"id": "call_2", "name": "git.commit", "args": {}},
    ]


def test_tool_that_was_never_offered_is_passed_on_as_it_is(endpoint, say, ask):
    endpoint.plays(say.answer(None, [say.call("rm_rf", {})]))
    assert ask(user(tools=TOOLS))["tool_calls"][0]["name"] == "rm_rf"


def test_calls_and_their_results_are_sent_back(endpoint, say, ask):
    endpoint.plays(say.answer("Done."))
    args = {"m": "grüße", "n": [1, None]}
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "git/commit", "args": args}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": '{"ok":true}'}
    ask({"messages": [{"role": "user", "content": "Go"}, asked, result], "tools": TOOLS})
    _, sent, told = endpoint.bodies[0]["messages"]
    assert (sent["content"], sent["tool_calls"][0]["id"]) == (None, "c1")
    assert sent["tool_calls"][0]["function"]["name"] == "git_commit"
    assert json.loads(sent["tool_calls"][0]["function"]["arguments"]) == args
    assert told == result


def test_tool_message_that_answers_nothing_is_refused_before_it_is_sent(endpoint, ask):
    with pytest.raises(Failed, match="no tool_call_id") as caught:
        ask({"messages": [{"role": "tool", "content": "{}"}]})
    assert caught.value.code == "PROVIDER_ERROR"
    assert endpoint.bodies == []


def test_schema_that_combines_at_the_top_is_told_in_words(endpoint, say, ask):
    endpoint.plays(say.answer())
    schema = {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    ask(user(tools=[{"name": "t", "schema_in": schema}]))
    function = endpoint.bodies[0]["tools"][0]["function"]
    assert function["parameters"] == {"type": "object", "properties": {"a": {}}}
    assert function["description"] == (
        'The arguments also have to fit {"anyOf":[{"required":["a"]},{"required":["b"]}]}'
    )


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "stop"), ("length", "max_tokens"), ("content_filter", "safety")]
)
def test_reasons_to_finish_are_the_contract_s(endpoint, say, ask, finish, reason):
    endpoint.plays(say.answer("so far", finish=finish))
    made = ask()
    assert (made["finish_reason"], made["text"]) == (reason, "so far")


def test_calls_count_though_the_server_says_stop(endpoint, say, ask):
    endpoint.plays(say.answer(None, [say.call("echo", "")], finish="stop"))
    made = ask(user(tools=TOOLS))
    assert (made["finish_reason"], made["tool_calls"][0]["args"]) == ("tool_use", {})


def test_calls_of_a_server_without_ids_get_ids_of_their_own(endpoint, say, ask):
    endpoint.plays(say.answer(None, [say.call("echo", {}, ""), say.call("echo", {}, "")]))
    past = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "name": "echo", "args": {}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "{}"},
    ]
    made = ask({"messages": past, "tools": TOOLS})
    assert [each["id"] for each in made["tool_calls"]] == ["call_2", "call_3"]


def test_refusal_is_safety_and_its_words_are_the_text(endpoint, say, ask):
    told = say.completion(None)
    told["choices"][0]["message"]["refusal"] = "I cannot help with that."
    endpoint.plays(say.body(told))
    made = ask()
    assert (made["finish_reason"], made["text"]) == ("safety", "I cannot help with that.")


def test_settings_and_request_shape_the_body(endpoint, say, ask):
    endpoint.plays(*[say.answer()] * 3)
    ask(temperature=0.5, max_output_tokens=100, extra={"seed": 7})
    ask(user(temperature=0, max_tokens=50), temperature=0.5, max_output_tokens=100)
    ask(user(max_tokens=500), max_output_tokens=100, dialect="openai")
    first, second, third = endpoint.bodies
    assert (first["temperature"], first["max_tokens"], first["seed"]) == (0.5, 100, 7)
    assert (second["temperature"], second["max_tokens"]) == (0, 50)
    assert (third["max_completion_tokens"], "max_tokens" in third) == (100, False)


def test_cost_is_what_the_prices_say_with_cached_tokens_cheaper(endpoint, say, ask):
    usage = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 600}}
    endpoint.plays(*[say.answer(usage=usage)] * 2)
    prices = {"input_per_million": 2, "output_per_million": 10}
    assert ask(prices=prices)["usage"] == {"input_tokens": 1000, "output_tokens": 200, "cost_usd": 0.004}
    assert ask(prices={**prices, "cached_input_per_million": 0.5})["usage"]["cost_usd"] == 0.0031


def test_endpoint_that_does_not_count_gets_an_estimate(endpoint, say, ask):
    endpoint.plays(say.answer("12345", usage=None))
    assert ask("123456789")["usage"] == {"input_tokens": 3, "output_tokens": 2}


# --- structured output ------------------------------------------------------------------------------------------------


def test_response_schema_becomes_a_strict_format(endpoint, say, ask, schemas):
    endpoint.plays(say.answer("{}"))
    ask(user(response_schema="plan_v1"))
    form = endpoint.bodies[0]["response_format"]["json_schema"]
    assert (form["name"], form["strict"]) == ("plan_v1", True)
    assert form["schema"]["properties"].keys() == schemas.document("plan_v1")["properties"].keys()
    assert form["schema"]["properties"]["steps"]["items"]["required"] == ["id", "description", "depends_on"]


@pytest.mark.parametrize("mode", ["none", "json_object"])
def test_schema_stands_in_the_instructions_where_the_endpoint_knows_no_schemas(endpoint, say, ask, schemas, mode):
    endpoint.plays(say.answer("{}"))
    messages = [{"role": "system", "content": "You plan."}, {"role": "user", "content": "Go"}]
    ask({"messages": messages, "response_schema": "plan_v1"}, structured=mode)
    body = endpoint.bodies[0]
    system = body["messages"][0]["content"]
    assert system.startswith("You plan.\n\n# The form of your answer")
    assert json.loads(system.partition("plan_v1:\n\n")[2]) == schemas.document("plan_v1")
    assert body.get("response_format") == ({"type": "json_object"} if mode == "json_object" else None)


def test_schema_makes_instructions_where_there_were_none(endpoint, say, ask):
    endpoint.plays(say.answer("{}"))
    ask(user(response_schema="plan_v1"), structured="none")
    assert [said["role"] for said in endpoint.bodies[0]["messages"]] == ["system", "user"]


def test_format_and_tools_go_together_only_at_openai_s_dialect(endpoint, say, ask):
    """Compatible servers would force the format onto the whole answer, so that no tool could be asked for."""
    endpoint.plays(say.answer("{}"), say.answer("{}"))
    ask(user(response_schema="worker_report_v1", tools=TOOLS))
    ask(user(response_schema="worker_report_v1", tools=TOOLS), dialect="openai")
    compatible, openai = endpoint.bodies
    assert "response_format" not in compatible
    assert "worker_report_v1" in compatible["messages"][0]["content"]
    assert openai["response_format"]["type"] == "json_schema"


def test_fence_around_the_whole_of_a_structured_answer_is_taken_off(endpoint, say, ask):
    fenced = '```json\n{"a": 1}\n```\n'
    endpoint.plays(*[say.answer(fenced)] * 2)
    assert ask(user(response_schema="plan_v1"))["text"] == '{"a": 1}'
    assert ask()["text"] == fenced


def test_schema_that_nobody_has_is_refused(endpoint, ask):
    with pytest.raises(Failed, match='no schema has the id "plan_v9"') as caught:
        ask(user(response_schema="plan_v9"))
    assert caught.value.code == "SCHEMA_UNKNOWN"
    assert endpoint.bodies == []
