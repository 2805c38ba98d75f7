"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP; then what is its own."""

import pytest

from deedbook_provider_gemini.signatures import FOREIGN, build_id, decode_bytes, parse_id
from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import GenerateContent
from deedbook_testing.endpoints.content import SIGNATURE, details
from deedbook_testing.endpoints.server import document, stream
from deedbook_testing.hosted import KEY, PRICES, TOOLS, user


class TestGemini(HostedProviderContract):
    name = "gemini"
    protocol = GenerateContent()
    sdk = "google.genai"
    extra = "deedbook-provider-gemini[sdk]"

    def test_sends_exactly_the_documented_headers_and_body(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond("Hi")
        (sent,) = endpoint.headers
        assert {name: value for name, value in sent.items() if name not in ("host", "content-length")} == {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "deedbook-provider-gemini",
            "x-goog-api-key": KEY,
        }
        assert endpoint.bodies == [{"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {}}]
        assert endpoint.paths == ["/v1beta/models/model-x:generateContent"]

    def test_signatures_travel_in_the_ids_of_calls(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("", [("echo", {}), ("echo", {})]), self.protocol.answer("ok"))
        calls = respond(user(tools=TOOLS))["tool_calls"]
        assert [call["id"] for call in calls] == [f"gemini_1:fn:0:{SIGNATURE}", "gemini_2:fn:1:"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "5"} for call in calls]
        asked = {"role": "assistant", "content": "", "tool_calls": calls}
        respond({"messages": [*user("Go")["messages"], asked, *results], "tools": TOOLS})
        _, model, answered = endpoint.bodies[1]["contents"]
        assert [part["functionCall"]["id"] for part in model["parts"]] == ["fn:0", "fn:1"]
        assert decode_bytes([{"parts": model["parts"]}]) == decode_bytes(
            [{"parts": [{**model["parts"][0], "thoughtSignature": SIGNATURE}, model["parts"][1]]}]
        )
        assert [part["functionResponse"] for part in answered["parts"]] == [
            {"id": f"fn:{number}", "name": "echo", "response": {"result": 5}} for number in range(2)
        ]

    def test_call_of_another_provider_has_the_signature_that_stands_for_none(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        calls = [{"id": call_id, "name": "echo", "args": {}} for call_id in ("toolu_1", "gemini_9")]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "no JSON"} for call in calls]
        asked = {"role": "assistant", "content": "", "tool_calls": calls}
        respond({"messages": [*user("Go")["messages"], asked, *results], "tools": TOOLS})
        parts = endpoint.bodies[0]["contents"][1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == [FOREIGN, None]

    @pytest.mark.parametrize("given", ["", "fn:1", "a:b:c"])
    @pytest.mark.parametrize("signature", ["", SIGNATURE])
    def test_ids_go_there_and_back(self, given, signature):
        assert parse_id(build_id(3, given, signature)) == (given, signature)

    def test_ids_that_the_api_repeats_are_told_apart(self, endpoint, respond):
        answer = self.protocol.message("", [("echo", {"n": 1}), ("echo", {"n": 2})])
        for part in answer["candidates"][0]["content"]["parts"]:
            part["functionCall"]["id"] = "same"
        endpoint.plays(document(answer))
        calls = respond(user(tools=TOOLS))["tool_calls"]
        assert [call["args"] for call in calls] == [{"n": 1}, {"n": 2}]
        assert len({call["id"] for call in calls}) == 2

    def test_thoughts_are_paid_for_and_not_shown(self, endpoint, respond):
        usage = {**self.protocol.usage(1000, 100), "thoughtsTokenCount": 100, "cachedContentTokenCount": 600}
        answer = self.protocol.message("Yes.", usage=usage)
        answer["candidates"][0]["content"]["parts"].insert(0, {"text": "Hm.", "thought": True})
        endpoint.plays(document(answer), document(answer))
        made = respond(prices=PRICES)
        assert made["text"] == "Yes."
        assert made["usage"] == {"input_tokens": 1000, "output_tokens": 200, "cost_usd": 0.004}
        assert respond(prices={**PRICES, "cached_input_per_million": 0.5})["usage"]["cost_usd"] == 0.0031

    @pytest.mark.parametrize("streams", [False, True])
    def test_prompt_that_is_blocked_is_a_stop_of_safety(self, endpoint, respond, streams):
        blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
        answer = stream([b"data: " + str(blocked).replace("'", '"').encode() + b"\n\n"], kind=self.protocol.kind)
        endpoint.plays(answer if streams else document(blocked))
        made = respond(stream=streams)
        assert (made["finish_reason"], made["text"], made["tool_calls"]) == ("safety", "", [])

    @pytest.mark.parametrize("reason", ["RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"])
    def test_stops_of_a_filter_are_stops_of_safety(self, endpoint, respond, reason):
        endpoint.plays(self.protocol.answer("so", finish=reason))
        assert respond()["finish_reason"] == "safety"

    def test_call_that_the_api_could_not_read_may_be_asked_for_again(self, endpoint, failed):
        endpoint.plays(self.protocol.answer("", finish="MALFORMED_FUNCTION_CALL"))
        problem = failed(user(tools=TOOLS))
        assert "could not read (MALFORMED_FUNCTION_CALL); ask again" in str(problem)
        assert problem.retryable

    def test_wrong_key_is_told_though_the_api_calls_it_an_argument(self, endpoint, failed):
        endpoint.plays(document(details("API key not valid.", 400, reason="API_KEY_INVALID"), status=400))
        assert "refused the key secret 'main'" in str(failed())

    def test_time_to_wait_is_read_from_the_body(self, endpoint, failed):
        endpoint.plays(document(details("Quota exceeded.", 429, retryDelay="34.5s"), status=429))
        problem = failed()
        assert "it wants to be asked again in 34 s" in str(problem)
        assert problem.retryable

    def test_parts_that_were_not_asked_for_are_no_answer(self, endpoint, failed):
        answer = self.protocol.message("x")
        answer["candidates"][0]["content"]["parts"].append({"executableCode": {"code": "x"}})
        endpoint.plays(document(answer))
        assert "'executableCode', which was not asked for" in str(failed())

    def test_form_may_be_told_in_words_with_json_alone(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("{}"))
        respond(user(response_schema="plan_v1"), structured="json_object")
        assert endpoint.bodies[0]["generationConfig"] == {"responseMimeType": "application/json"}
        assert "plan_v1" in self.read_back(endpoint).system

    def test_settings_of_the_body_arrive(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond(extra={"safetySettings": []})
        assert endpoint.bodies[0]["safetySettings"] == []
