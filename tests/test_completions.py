"""Model calls at the boundary: version 1 is raised to version 2, and nothing that fits neither passes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook.policy.completions import Completion, CompletionSchema, upcast

SCHEMAS = Schemas.load(data_folder("schemas"))
ANYTHING = foreign({"type": "object"}, place="test")
REQUESTS = CompletionSchema(SCHEMAS, "completion_request", ANYTHING)
RESPONSES = CompletionSchema(SCHEMAS, "completion_response", ANYTHING)


def request(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], "model": "m", "schema_version": "v2"} | more


def response(**more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 2}
    fixed = {"text": "hello", "tool_calls": [], "finish_reason": "stop", "usage": usage, "model": "m"}
    return fixed | {"schema_version": "v2"} | more


def paths(found: Any) -> list[str]:
    return [violation.path for violation in found]


# --- the handler ------------------------------------------------------------------------------------------------------


def ask(given_: Any, answered: Any, *, later: bool) -> tuple[Any, Any]:
    """Send *given_* to a provider that answers *answered*; return what it was sent and what came back."""
    sent: list[Any] = []

    def provider(message: Any, _ctx: Any) -> Any:
        sent.append(message)
        return answered

    async def slow_provider(message: Any, ctx: Any) -> Any:
        return provider(message, ctx)

    made = Completion(slow_provider if later else provider)(given_, None)
    return sent[0] if sent else None, made


@pytest.mark.parametrize("given_", [request(), request(schema_version="v1")], ids=["v2", "v1"])
@pytest.mark.parametrize("answered", [response(), response(schema_version="v1")], ids=["v2", "v1"])
def test_completion_is_sent_and_gives_version_2_whatever_it_was_asked_in(given_: Any, answered: Any) -> None:
    assert ask(given_, answered, later=False) == (request(), response())


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_completion_of_an_asynchronous_provider_is_raised_when_it_comes(version: str) -> None:
    _, made = ask(request(), response(schema_version=version), later=True)
    assert asyncio.run(made) == response()


def test_completion_passes_the_context_through() -> None:
    assert Completion(lambda _, ctx: ctx)(request(), "ctx") == "ctx"


def test_completion_sends_a_version_2_request_as_it_is() -> None:
    given_ = request()
    sent, _ = ask(given_, response(), later=False)
    assert sent is given_


@pytest.mark.parametrize("answered", [None, [], "text", 1, {}], ids=repr)
def test_completion_hands_on_what_is_no_response_for_the_schema_to_refuse(answered: Any) -> None:
    assert ask(request(), answered, later=False)[1] is answered
    assert not RESPONSES.valid(answered)


# --- raising version 1 ------------------------------------------------------------------------------------------------


def test_upcast_only_changes_the_version_and_leaves_the_original_alone() -> None:
    first = request(schema_version="v1", temperature=0.5)
    assert upcast(first) == request(temperature=0.5)
    assert first["schema_version"] == "v1"


@pytest.mark.parametrize(
    "message", [request(), request(schema_version="v3"), {}, None, [], "v1", {"schema_version": []}]
)
def test_upcast_leaves_anything_but_version_1_as_it_is(message: Any) -> None:
    assert upcast(message) is message


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        request(), request(schema_version="v1"), request(role="worker", skill=None, response_schema="plan_v1"),
        request(schema_version="v1", tools=[{"name": "echo", "schema_in": {}}], max_tokens=5, temperature=0),
        request(schema_version="v3"),
        request(schema_version="v3", messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
    ],
    ids=["v2", "v1", "v2 with a role", "v1 with tools", "v3", "v3 with parts"],
)  # fmt: skip
def test_schema_accepts_requests_of_every_version(message: Any) -> None:
    assert REQUESTS.valid(message)
    assert REQUESTS.violations(message) == ()


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (request(schema_version="v4"), ["$.schema_version"]),
        (request(schema_version="v3", messages="hi"), ["$.messages"]),
        (request(schema_version=1), ["$.schema_version"]),
        (request(messages="hi"), ["$.messages"]),
        (request(schema_version="v1", messages="hi"), ["$.messages"]),
        (request(schema_version="v1", messages=[]), ["$.messages"]),
        (request(schema_version="v1", messages=[{"role": "developer", "content": ""}]), ["$.messages[0].role"]),
        (request(schema_version="v1", max_tokens=0), ["$.max_tokens"]),
    ],
    ids=repr,
)
def test_schema_refuses_requests_with_the_place(message: Any, found: list[str]) -> None:
    assert not REQUESTS.valid(message)
    assert paths(REQUESTS.violations(message)) == found


def test_schema_refuses_what_version_1_left_open_and_version_2_cannot_say() -> None:
    for message in (request(schema_version="v1", seed=1), request(schema_version="v1", role="")):
        assert not REQUESTS.valid(message)
        assert REQUESTS.violations(message)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": -1, "output_tokens": 0}, {"input_tokens": 0, "output_tokens": 0, "cost_usd": -0.5}],
    ids=repr,
)
def test_schema_refuses_a_negative_usage_in_either_version(version: str, usage: Any) -> None:
    message = response(schema_version=version, usage=usage)
    assert not RESPONSES.valid(message)
    assert len(RESPONSES.violations(message)) == 1


def test_schema_judges_by_what_the_provider_declares_in_terms_of_version_2() -> None:
    declared = foreign(
        {"type": "object", "properties": {"model": {"const": "small"}, "schema_version": {"const": "v2"}}},
        place="provider: takes",
    )
    requests = CompletionSchema(SCHEMAS, "completion_request", declared)
    assert requests.valid(request(model="small", schema_version="v1"))
    assert not requests.valid(request(model="large"))
    assert paths(requests.violations(request(model="large"))) == ["$.model"]


values = st.none() | st.integers(-2, 2) | st.text(max_size=3) | st.just([]) | st.just({})
spoilt = st.dictionaries(
    st.sampled_from(
        ["messages", "model", "text", "tool_calls", "usage", "finish_reason", "skill", "schema_version", "x"]
    ),
    values | st.sampled_from(["v1", "v2", "stop", "tool_use"]),
    max_size=3,
)


@given(spoilt, st.booleans(), st.sets(st.sampled_from(["messages", "text", "model", "usage"])))
def test_schema_says_what_is_wrong_exactly_where_it_says_that_something_is(changes: Any, asks: bool, gone: Any) -> None:
    schema, message = (REQUESTS, request()) if asks else (RESPONSES, response())
    spoiled = {key: value for key, value in (message | changes).items() if key not in gone}
    assert schema.valid(spoiled) == (schema.violations(spoiled) == ())


@given(spoilt, st.booleans())
def test_schema_accepts_no_version_1_that_its_own_frozen_schema_refuses(changes: Any, asks: bool) -> None:
    schema, message = (REQUESTS, request()) if asks else (RESPONSES, response())
    first = message | changes | {"schema_version": "v1"}
    own = SCHEMAS.validator("completion_request_v1" if asks else "completion_response_v1")
    assert own.valid(first) or not schema.valid(first)
