"""Whatever an endpoint answers, a provider makes a response of it that has its schema, or says what is wrong."""

import copy
import json
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder
from deedbook_provider_anthropic import Anthropic
from deedbook_provider_gemini import Gemini
from deedbook_provider_http import Trouble
from deedbook_provider_http.functions import names_of
from deedbook_provider_ollama import Ollama
from deedbook_provider_openai import OpenAI
from deedbook_testing.endpoints import ChatCompletions, GenerateContent, Messages, OllamaChat, Responses

SCHEMAS = Schemas.load(data_folder("schemas"))
HOST = SimpleNamespace(schema=SCHEMAS.document)
REQUEST = {
    "messages": [{"role": "user", "content": "Hi"}],
    "model": "model-x",
    "tools": [{"name": "echo"}],
    "schema_version": "v2",
}
PROVIDERS = {
    "anthropic": (Anthropic({"prices": {"input_per_million": 1, "output_per_million": 1}}, HOST), Messages()),
    "gemini": (Gemini({}, HOST), GenerateContent()),
    "ollama": (Ollama({}, HOST), OllamaChat()),
    "openai": (OpenAI({}, HOST), ChatCompletions()),
    "openai-responses": (OpenAI({"api": "responses"}, HOST), Responses()),
}
CALLS = [("echo", {"text": "a"}), ("echo", {"n": [1]})]

scalars = st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False) | st.text(max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)


def places(value, path=()):
    """Yield the path of everything in a document."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def spoilt(document, path, value):
    """Return a copy of *document* with *value* at a path, or without what is there."""
    made = copy.deepcopy(document)
    here = made
    for name in path[:-1]:
        here = here[name]
    if path and value is ...:
        del here[path[-1]]
    elif path:
        here[path[-1]] = value
    return made


def checked(provider, document):
    with suppress(Trouble):
        made = provider.answer(document, REQUEST, names_of(REQUEST))
        assert SCHEMAS.validator("completion_response_v2").violations(made) == ()


@pytest.mark.parametrize("name", PROVIDERS)
@given(data=st.data())
def test_spoilt_answer_is_a_response_or_a_trouble(name, data):
    provider, protocol = PROVIDERS[name]
    whole = protocol.message("Hello.", CALLS)
    path = data.draw(st.sampled_from([path for path in places(whole) if path]))
    checked(provider, spoilt(whole, path, data.draw(values | st.just(...))))


@pytest.mark.parametrize("name", PROVIDERS)
@given(data=st.data())
def test_spoilt_stream_is_a_response_or_a_trouble(name, data):
    provider, protocol = PROVIDERS[name]
    lines = [
        line.removeprefix(b"data: ") for raw in protocol.events(["He", "llo."], CALLS) for line in raw.split(b"\n")
    ]
    events = [json.loads(line) for line in lines if line.startswith(b"{")]
    which = data.draw(st.integers(0, len(events) - 1))
    path = data.draw(st.sampled_from([path for path in places(events[which]) if path]))
    events[which] = spoilt(events[which], path, data.draw(values | st.just(...)))
    merged = provider.merged()
    with suppress(Trouble):
        assert all(type(merged.add(event)) is str for event in events)
        checked(provider, merged.document())
