"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP; then what is its own."""

import pytest

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import Messages
from deedbook_testing.endpoints.protocol import sse
from deedbook_testing.endpoints.server import document, stream
from deedbook_testing.hosted import KEY, PRICES, TOOLS, user


class TestAnthropic(HostedProviderContract):
    name = "anthropic"
    protocol = Messages()
    sdk = "anthropic"
    extra = "deedbook-provider-anthropic[sdk]"

    def test_sends_exactly_the_documented_headers(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond(headers={"anthropic-beta": "x-1"})
        (sent,) = endpoint.headers
        assert {name: value for name, value in sent.items() if name not in ("host", "content-length")} == {
            "accept": "application/json",
            "accept-encoding": "identity",
            "anthropic-beta": "x-1",
            "anthropic-version": "2023-06-01",
            "content-type": "application/json",
            "user-agent": "deedbook-provider-anthropic",
            "x-api-key": KEY,
        }

    def test_sends_the_limit_of_tokens_that_the_api_wants(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond("Hi")
        assert endpoint.bodies == [
            {
                "model": "model-x",
                "max_tokens": 16384,
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            }
        ]

    def test_joins_system_prompts_and_turns_of_one_role(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        said = [("system", "One."), ("user", "a"), ("system", "Two."), ("assistant", ""), ("user", "b")]
        respond({"messages": [{"role": role, "content": text} for role, text in said]})
        read = self.read_back(endpoint)
        assert (read.system, read.said) == ("One.\n\nTwo.", [("user", "a"), ("user", "b")])

    def test_results_stand_before_any_text_of_their_turn(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        call = {"id": "c1", "name": "echo", "args": {}}
        said = [
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "user", "content": "Hurry."},
            {"role": "tool", "tool_call_id": "c1", "content": "{}"},
        ]
        respond({"messages": said, "tools": TOOLS})
        assert self.read_back(endpoint).said[2:] == [("result", "echo", {}), ("user", "Hurry.")]

    def test_conversation_without_a_user_is_refused_before_it_is_sent(self, endpoint, failed):
        problem = failed({"messages": [{"role": "system", "content": "x"}]})
        assert "no message of a user" in str(problem)
        assert endpoint.bodies == []

    def test_counts_what_the_cache_gave_and_took_with_its_prices(self, endpoint, respond):
        usage = {**self.protocol.usage(100, 200), "cache_read_input_tokens": 600, "cache_creation_input_tokens": 300}
        endpoint.plays(self.protocol.answer("x", usage=usage), self.protocol.answer("x", usage=usage))
        assert respond(prices=PRICES)["usage"] == {"input_tokens": 1000, "output_tokens": 200, "cost_usd": 0.004}
        prices = {**PRICES, "cached_input_per_million": 0.2, "cache_write_per_million": 2.5}
        assert respond(prices=prices)["usage"]["cost_usd"] == 0.00307

    def test_counts_of_a_stream_are_those_of_its_end(self, endpoint, respond):
        endpoint.plays(self.protocol.streamed(["x"]))
        assert respond(stream=True)["usage"] == {"input_tokens": 9, "output_tokens": 12}

    def test_call_without_arguments_may_come_as_no_text_at_all(self, endpoint, respond):
        events = self.protocol.events([], [("echo", {})])
        kept = [event for event in events if b"input_json_delta" not in event]
        endpoint.plays(stream(kept, kind=self.protocol.kind))
        assert respond(user(tools=TOOLS), stream=True)["tool_calls"][0]["args"] == {}

    def test_call_of_a_stream_with_broken_arguments_is_no_answer(self, endpoint, failed):
        raw = b"".join(self.protocol.events([], [("echo", {"n": 1})])).replace(b'" 1}"', b'" "')
        endpoint.plays(stream([raw], kind=self.protocol.kind))
        problem = failed(user(tools=TOOLS), stream=True, code="MALFORMED_AGENT_MESSAGE")
        assert "arguments that are refused" in str(problem)
        assert problem.retryable

    def test_malformed_streams_are_no_answers(self, endpoint, failed):
        whole = self.protocol.events(["x"])
        block = sse({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}})
        wrong = [
            sse({"type": "message_start", "message": 5}),
            sse({"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}}),
            sse({"type": "content_block_start", "index": "1", "content_block": {}}),
            block + block,
            block + sse({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": 5}}),
            b"data: 5\n\n",
        ]
        endpoint.plays(*(stream([whole[0], each, *whole[1:]], kind=self.protocol.kind) for each in wrong))
        for _ in wrong:
            problem = failed(stream=True)
            assert "the stream" in str(problem)
            assert problem.retryable

    def test_events_and_deltas_of_types_to_come_are_passed_over(self, endpoint, respond):
        first, *rest = self.protocol.events(["x"])
        new = [sse({"type": "new_event", "index": 1}), first]
        delta = sse({"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}})
        endpoint.plays(stream([*new, *rest[:3], delta, *rest[3:]], kind=self.protocol.kind))
        assert respond(stream=True)["text"] == "x"

    def test_block_that_was_not_asked_for_is_no_answer(self, endpoint, failed):
        made = self.protocol.message("x")
        made["content"].append({"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}})
        endpoint.plays(document(made))
        assert "'server_tool_use', which was not asked for" in str(failed())

    @pytest.mark.parametrize("layout", ["thought, text, calls", "thoughts among texts", "only thoughts"])
    def test_thinking_comes_back_as_it_was(self, endpoint, respond, layout):
        thought = {"type": "thinking", "thinking": "Hm, “so”.", "signature": "c2ln"}
        hidden = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
        text = [{"type": "text", "text": each} for each in ("Let me see.", " Now.")]
        calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "echo", "input": {"n": n}} for n in range(2)]
        content = {
            "thought, text, calls": [thought, text[0], *calls],
            "thoughts among texts": [hidden, text[0], thought, calls[0], thought, text[1], calls[1]],
            "only thoughts": [thought, hidden, *calls],
        }[layout]
        endpoint.plays(
            document({**self.protocol.message("", [("echo", {})]), "content": content}), self.protocol.answer("ok")
        )
        first = respond(user(tools=TOOLS))
        asked = {"role": "assistant", "content": first["text"], "tool_calls": first["tool_calls"]}
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "{}"} for call in first["tool_calls"]]
        respond({"messages": [*user()["messages"], asked, *results], "tools": TOOLS})
        _, again, answers = endpoint.bodies[1]["messages"]
        assert again == {"role": "assistant", "content": content}
        assert [block["tool_use_id"] for block in answers["content"]] == ["toolu_0", "toolu_1"]

    def test_thinking_of_a_stream_comes_back_too(self, endpoint, respond):
        endpoint.plays(self.protocol.streamed(["So."], [("echo", {"n": 1})]), self.protocol.answer("ok"))
        first = respond(user(tools=TOOLS), stream=True)
        asked = {"role": "assistant", "content": first["text"], "tool_calls": first["tool_calls"]}
        result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "{}"}
        respond({"messages": [*user()["messages"], asked, result], "tools": TOOLS})
        thought, text, _ = endpoint.bodies[1]["messages"][1]["content"]
        assert thought == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        assert text == {"type": "text", "text": "So."}

    @pytest.mark.parametrize("layout", ["", "[", "[7,null]", "[3]", "[3,null,null]", "[{}]", '{"a":1}', "[0,3,null]"])
    def test_message_that_was_changed_is_sent_without_its_thinking(self, endpoint, respond, layout):
        endpoint.plays(self.protocol.answer("ok"))
        call = {"id": f"toolu_0:{layout}", "name": "echo", "args": {}}
        asked = {"role": "assistant", "content": "So.", "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "{}"}
        respond({"messages": [*user()["messages"], asked, result], "tools": TOOLS})
        assert endpoint.bodies[0]["messages"][1]["content"] == [
            {"type": "text", "text": "So."},
            {"type": "tool_use", "id": "toolu_0", "name": "echo", "input": {}},
        ]

    def test_account_without_credit_is_not_asked_again(self, endpoint, failed):
        endpoint.plays(
            self.protocol.refusal("Your credit balance is too low to access the API.", 400),
            self.protocol.refusal("billing", 402),
        )
        for _ in range(2):
            problem = failed()
            assert "no quota left; see its plan and billing" in str(problem)
            assert not problem.retryable

    def test_conversation_that_is_too_long_is_said(self, endpoint, failed):
        endpoint.plays(self.protocol.refusal("prompt is too long: 200001 tokens > 200000 maximum", 400))
        assert "longer than model-x takes; use a model that takes more" in str(failed())

    def test_settings_of_the_body_arrive(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        extra = {"metadata": {"user_id": "u"}, "thinking": {"type": "between_tools"}}
        respond(user(response_schema="plan_v1"), extra=extra, temperature=0.3, effort="low")
        (body,) = endpoint.bodies
        assert (body["metadata"], body["thinking"], body["temperature"]) == (*extra.values(), 0.3)
        assert (body["output_config"]["effort"], body["output_config"]["format"]["type"]) == ("low", "json_schema")

    def test_schema_that_the_api_cannot_take_is_told_in_words(self, endpoint, respond):
        wanted = "completion_request_v2"  # it takes an object or null, which structured outputs do not say
        endpoint.plays(self.protocol.answer("{}"))
        respond(user(response_schema=wanted))
        read = self.read_back(endpoint)
        assert read.form is None
        assert wanted in read.system
