"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP; then what is its own."""

import json

import pytest

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import OllamaChat
from deedbook_testing.endpoints.server import document, stream
from deedbook_testing.hosted import KEY, TOOLS, user


class TestOllama(HostedProviderContract):
    name = "ollama"
    protocol = OllamaChat()

    def test_sends_exactly_the_documented_headers_and_body(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond("Hi", options={"num_ctx": 8192, "seed": 7}, temperature=0, extra={"keep_alive": "5m", "think": False})
        (sent,) = endpoint.headers
        assert {name: value for name, value in sent.items() if name not in ("host", "content-length")} == {
            "accept": "application/json",
            "accept-encoding": "identity",
            "authorization": f"Bearer {KEY}",
            "content-type": "application/json",
            "user-agent": "deedbook-provider-ollama",
        }
        assert endpoint.bodies == [
            {
                "model": "model-x",
                "messages": [{"role": "user", "content": "Hi"}],
                "stream": False,
                "truncate": False,
                "shift": False,
                "options": {"num_ctx": 8192, "seed": 7, "temperature": 0},
                "keep_alive": "5m",
                "think": False,
            }
        ]

    def test_calls_get_ids_that_the_conversation_does_not_have(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("", [("echo", {}), ("echo", {})]))
        past = [
            *user("Go")["messages"],
            {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "name": "echo", "args": {}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "{}"},
        ]
        made = respond({"messages": past, "tools": TOOLS})
        assert [call["id"] for call in made["tool_calls"]] == ["call_2", "call_3"]

    def test_ids_that_the_server_gives_are_kept(self, endpoint, respond):
        answer = self.protocol.message("", [("echo", {})])
        answer["message"]["tool_calls"][0]["id"] = "call_abc"
        endpoint.plays(document(answer))
        assert respond(user(tools=TOOLS))["tool_calls"][0]["id"] == "call_abc"

    def test_ids_that_the_server_repeats_are_no_answer(self, endpoint, failed):
        answer = self.protocol.message("", [("echo", {}), ("echo", {})])
        for call in answer["message"]["tool_calls"]:
            call["id"] = "call_abc"
        endpoint.plays(document(answer))
        problem = failed(user(tools=TOOLS))
        assert "two tool calls have the same id" in str(problem)
        assert problem.retryable

    @pytest.mark.parametrize("reason", ["load", "unload"])
    def test_server_that_only_loads_or_unloads_the_model_gives_no_answer(self, endpoint, failed, reason):
        endpoint.plays(self.protocol.answer("", finish=reason))
        assert f'the answer\'s done_reason is "{reason}"; expected stop or length' in str(failed())

    def test_answer_that_is_not_done_is_none(self, endpoint, failed):
        answer = self.protocol.message("x")
        endpoint.plays(document({**answer, "done": False}), document({**answer, "message": None}))
        assert "the answer's done is false; expected true" in str(failed())
        assert "no message" in str(failed())

    def test_stream_that_goes_on_after_its_end_is_no_answer(self, endpoint, failed):
        lines = self.protocol.events(["x"])
        endpoint.plays(stream([*lines, lines[1]], kind=self.protocol.kind))
        assert "goes on after the answer was done" in str(failed(stream=True))

    def test_last_line_of_a_stream_needs_no_end(self, endpoint, respond):
        endpoint.plays(stream([b"".join(self.protocol.events(["x"])).rstrip()], kind=self.protocol.kind))
        assert respond(stream=True)["text"] == "x"

    def test_model_that_is_not_pulled_is_named(self, endpoint, failed):
        endpoint.plays(self.protocol.refusal("model 'model-x' not found", 404))
        problem = failed()
        assert "does not know the model 'model-x'" in str(problem)
        assert "(404: model 'model-x' not found)" in str(problem)

    def test_form_may_be_told_in_words_with_json_alone(self, endpoint, respond, kernel_schemas):
        endpoint.plays(self.protocol.answer("{}"))
        respond(user(response_schema="plan_v1"), structured="json_object")
        assert endpoint.bodies[0]["format"] == "json"
        assert json.dumps(kernel_schemas.document("plan_v1"), separators=(",", ":")) in self.read_back(endpoint).system

    def test_server_needs_no_key(self, endpoint, respond):
        endpoint.plays(self.protocol.answer("ok"))
        respond(key=None)
        assert "authorization" not in endpoint.headers[0]
