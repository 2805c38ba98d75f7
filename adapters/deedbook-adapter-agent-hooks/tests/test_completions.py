"""The contexts of hosts in the forms that Deedbook records; the contract leaves the form of contents to the host."""

from agent_hooks import AgentContextBuilder
from deedbook_adapter_agent_hooks.completions import reply_text, request_of, response_of, text_of

MAKE = AgentContextBuilder(agent_id="a", framework="own", session_id="s")


def test_request_has_messages_tools_and_limits():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]},
        {"role": "tool", "content": [{"type": "function_result", "call_id": "1", "result": {"n": 1}}]},
        {"role": "tool", "content": {"n": 2}, "tool_call_id": "2"},
        {"role": "developer", "content": [{"type": "text", "text": "see"}, {"type": "image", "data": "…"}]},
    ]
    schema = {"type": "object"}
    tools = [{"name": "f", "description": "Do it.", "schema": schema}]
    context = MAKE.pre_model_call(
        model_id="small", messages=messages, tools=tools, params={"max_tokens": 9, "temperature": 0}
    )
    assert request_of(context) == {
        "schema_version": "v2",
        "model": "small",
        "max_tokens": 9,
        "temperature": 0,
        "tools": [{"name": "f", "description": "Do it.", "schema_in": schema}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "f", "args": {}}]},
            {"role": "tool", "content": '{"n": 1}', "tool_call_id": "1"},
            {"role": "tool", "content": '{"n": 2}', "tool_call_id": "2"},
            {"role": "user", "content": "see\n[image]"},
        ],
    }


def test_response_has_the_usage_under_the_names_of_the_contract_and_of_hosts():
    said = {"model_id": "small", "content": None, "tool_calls": [{"name": "f", "args": {"n": 1}}], "finish_reason": "x"}
    for names in (("prompt_tokens", "completion_tokens"), ("input_token_count", "output_token_count")):
        answer = response_of(MAKE.post_model_call(**said, usage=dict(zip(names, (7, 3), strict=True))))
        assert answer["usage"] == {"input_tokens": 7, "output_tokens": 3}
        assert answer["tool_calls"] == [{"id": "call_1", "name": "f", "args": {"n": 1}}]
        assert (answer["text"], answer["finish_reason"]) == ("", "tool_use")


def test_text_of_messages_is_that_of_their_parts():
    call = {"role": "assistant", "content": [{"type": "function_call", "name": "f"}]}
    content = [call, {"role": "assistant", "content": "one"}, {"role": "user", "content": None}, "two"]
    assert text_of(content) == "[function_call]\none\ntwo"
    assert reply_text(content) == "one\ntwo"
    assert (reply_text("one"), text_of(None), text_of({"n": 1})) == ("one", "", '{"n": 1}')
