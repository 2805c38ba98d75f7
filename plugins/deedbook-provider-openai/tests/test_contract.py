"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP, with both protocols."""

import json

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import ChatCompletions, Responses
from deedbook_testing.endpoints.server import document, stream
from deedbook_testing.hosted import KEY, PRICES, TOOLS, user


class TestOpenAI(HostedProviderContract):
    name = "openai"
    protocol = ChatCompletions()
    sdk = "openai"


class TestOpenAIResponses(HostedProviderContract):
    name = "openai"
    protocol = Responses()
    sdk = "openai"
    once = {"api": "responses"}

    def test_sends_exactly_the_documented_body_and_keeps_nothing_at_the_vendor(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond("Hi", extra={"reasoning": {"effort": "low"}})
        assert endpoint.bodies == [
            {
                "model": "model-x",
                "input": [{"role": "user", "content": "Hi"}],
                "store": False,
                "reasoning": {"effort": "low"},
            }
        ]

    def test_refusal_is_safety_and_its_words_are_the_text(self, endpoint, respond):
        answer = self.protocol.message("x")
        answer["output"][1]["content"] = [{"type": "refusal", "refusal": "I cannot help with that."}]
        endpoint.plays(document(answer))
        made = respond()
        assert (made["finish_reason"], made["text"]) == ("safety", "I cannot help with that.")

    def test_response_that_failed_is_told_without_the_key(self, endpoint, failed):
        answer = {**self.protocol.message("x"), "status": "failed", "error": {"code": "x", "message": f"no {KEY}"}}
        event = b"data: " + json.dumps({"type": "response.failed", "response": answer}).encode() + b"\n\n"
        endpoint.plays(document(answer), stream([event], kind=self.protocol.kind))
        for streams in (False, True):
            problem = failed(stream=streams)
            assert "no ***" in str(problem)
            assert problem.retryable

    def test_unknown_states_and_items_are_no_answers(self, endpoint, failed):
        whole = self.protocol.message("x")
        endpoint.plays(
            document({**whole, "status": "queued"}),
            document({**whole, "status": "incomplete", "incomplete_details": {"reason": "tired"}}),
            document({**whole, "output": [{"type": "web_search_call"}]}),
        )
        told = (
            'the answer\'s status is "queued"; expected completed or incomplete',
            'incomplete_details.reason is "tired"; expected max_output_tokens or content_filter',
            "'web_search_call'",
        )
        assert [words in str(failed()) for words in told] == [True] * 3

    def test_answer_without_a_status_or_a_reason_says_what_is_missing(self, endpoint, failed):
        whole = self.protocol.message("x")
        endpoint.plays(document({}), document({**whole, "status": "incomplete", "incomplete_details": {}}))
        assert "the answer has no status; expected completed or incomplete" in str(failed())
        assert "the answer has no incomplete_details.reason; expected max_output_tokens" in str(failed())

    def test_cached_tokens_are_cheaper(self, endpoint, respond):
        usage = {**self.protocol.usage(1000, 200), "input_tokens_details": {"cached_tokens": 600}}
        endpoint.plays(self.protocol.answer("x", usage=usage))
        assert respond(prices={**PRICES, "cached_input_per_million": 0.5})["usage"]["cost_usd"] == 0.0031

    def test_form_and_tools_go_together_at_openai_s_dialect(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("{}"), self.protocol.answer("{}"))
        respond(user(response_schema="plan_v1", tools=TOOLS), dialect="openai")
        respond(user(response_schema="plan_v1"), structured="json_object")
        assert endpoint.bodies[0]["text"]["format"]["strict"] is True
        assert endpoint.bodies[1]["text"]["format"] == {"type": "json_object"}
        assert "plan_v1" in endpoint.bodies[1]["instructions"]
