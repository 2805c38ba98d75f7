"""Every way in which an endpoint can fail has a code and says what to do, and never names the key."""

import asyncio

import pytest

from deedbook import Failed
from deedbook_provider_http import exchange

CODE = "PROVIDER_ERROR"


def failed(ask, *args, code=CODE, **settings):
    with pytest.raises(Failed) as caught:
        ask(*args, **settings)
    assert caught.value.code == code
    return str(caught.value), caught.value.retryable


REFUSALS = {
    "401": (
        401,
        "Incorrect API key",
        "invalid_api_key",
        "refused the key secret 'main'; correct its environment",
        False,
    ),
    "403": (403, "Not for you", None, "see what the key secret 'main' may do and whether gpt-x is open", False),
    "404": (404, "No such model", "model_not_found", "does not know the model 'gpt-x'", False),
    "context": (
        400,
        "too long",
        "context_length_exceeded",
        "longer than gpt-x takes; use a model that takes more",
        False,
    ),
    "400": (400, "Unknown parameter: 'x'", None, "see the provider's README for structured", False),
    "413": (413, "big", None, "refused the request as too large", False),
    "422": (422, "odd", None, "refused the request", False),
    "409": (409, "locked", None, "refused the request", True),
    "429": (429, "slow down", "rate_limit_exceeded", "was asked too often", True),
    "quota": (429, "You exceeded your quota", "insufficient_quota", "no quota left; see its plan and billing", False),
    "500": (500, "oops", None, "failed (500: oops)", True),
    "503": (503, "overloaded", None, "failed (503: overloaded)", True),
    "redirect": (302, "elsewhere", None, "a redirect, which is not followed", False),
    "teapot": (418, "teapot", None, "refused the request (418: teapot)", False),
}


@pytest.mark.parametrize(("status", "said", "code", "message", "retryable"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_says_what_to_do(endpoint, say, ask, status, said, code, message, retryable):
    endpoint.plays(say.error(status, said, code, location="http://127.0.0.1:9/v1"))
    told, again = failed(ask)
    assert message in told
    assert endpoint.url in told
    assert again is retryable
    assert len(endpoint.bodies) == 1


def test_endpoint_that_wants_a_key_is_told_none(endpoint, say, ask, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    endpoint.plays(say.error(401, "who are you"))
    assert "declare one under secrets: and name it with key:" in failed(ask, key=None)[0]
    assert "authorization" not in endpoint.headers[0]


@pytest.mark.parametrize(
    "raw", [b"", b"oops", b"[1]", b'{"detail": "gone"}', b'{"error": "gone"}', b'{"a": 1, "a": 2}', b"\xff\xfe"]
)
def test_error_in_another_form_is_still_one(endpoint, say, ask, raw):
    endpoint.plays(say.body(raw, 500))
    assert "failed (500" in failed(ask)[0]


def test_key_is_in_no_message_even_if_the_endpoint_repeats_it(endpoint, say, ask):
    endpoint.plays(*[say.error(status, f"bad key {say.KEY} or gw-secret-77") for status in (401, 500)])
    for _ in range(2):
        told, _ = failed(ask, headers={"x-gateway": {"secret": "gateway"}})
        assert "bad key *** or ***" in told
        assert say.KEY not in told


def test_key_that_no_header_may_hold_is_refused_unsaid(endpoint, ask):
    told, _ = failed(ask, key="bad")
    assert told.startswith("the secret 'bad' holds a line end")
    assert "sk-line" not in told
    assert endpoint.bodies == []


UNCLEAR = {
    "no JSON": b"{'id'",
    "cut JSON": b'{"id": "chatcmpl',
    "twice": b'{"choices": [], "choices": []}',
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "no choices": {"id": "x"},
    "empty choices": {"choices": []},
    "choice": {"choices": [5]},
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "parts": {"choices": [{"finish_reason": "stop", "message": {"content": [{"type": "text"}]}}]},
    "no reason": {"choices": [{"finish_reason": None, "message": {"content": "x"}}]},
    "a reason": {"choices": [{"finish_reason": "tired", "message": {"content": "x"}}]},
    "no calls": {"choices": [{"finish_reason": "tool_calls", "message": {"content": None}}]},
    "calls": {"choices": [{"finish_reason": "stop", "message": {"tool_calls": {"a": 1}}}]},
    "call": {"choices": [{"finish_reason": "stop", "message": {"tool_calls": [1]}}]},
    "custom": {"choices": [{"finish_reason": "stop", "message": {"tool_calls": [{"id": "a", "type": "custom"}]}}]},
    "no function": {
        "choices": [{"finish_reason": "stop", "message": {"tool_calls": [{"id": "a", "type": "function"}]}}]
    },
    "no name": {"choices": [{"finish_reason": "stop", "message": {"tool_calls": [{"id": "a", "function": {}}]}}]},
}


@pytest.mark.parametrize("told", UNCLEAR.values(), ids=UNCLEAR)
def test_answer_that_is_not_the_protocol_s_is_no_answer(endpoint, say, ask, told):
    endpoint.plays(say.body(told))
    message, retryable = failed(ask, code="INTAKE_REFUSED" if isinstance(told, bytes) and told != b"[]" else CODE)
    assert message.startswith(f"{endpoint.url}: the endpoint's answer is ")
    assert retryable


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"a": NaN}', '{"a": 1, "a": 2}', "nothing"])
def test_arguments_that_are_no_json_object_are_no_call(endpoint, say, ask, arguments):
    endpoint.plays(say.answer(None, [say.call("echo", arguments)]))
    told, retryable = failed(ask, code="MALFORMED_AGENT_MESSAGE")
    assert "the model's call of echo has arguments that are " in told
    assert retryable


def test_calls_with_one_id_are_refused(endpoint, say, ask):
    endpoint.plays(say.answer(None, [say.call("echo", {}), say.call("echo", {})]))
    assert "two tool calls have the same id" in failed(ask)[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/json", "text/event-stream"])
def test_other_kind_of_content_is_refused(endpoint, say, ask, stream, kind):
    if kind == ("text/event-stream" if stream else "application/json"):
        kind = "application/octet-stream"
    endpoint.plays(say.body(say.completion(), kind=kind))
    assert f"answers with {kind} instead of" in failed(ask, stream=stream)[0]


@pytest.mark.parametrize("status", [200, 500])
def test_oversized_answer_is_broken_off(endpoint, say, ask, monkeypatch, status):
    monkeypatch.setattr(exchange, "MAX_BYTES", 1000)
    endpoint.plays(say.body(say.completion("x" * 2000), status))
    assert "larger than 1000 bytes" in failed(ask)[0]


def test_compressed_answer_is_refused(endpoint, say, ask):
    endpoint.plays(say.answer(headers={"content_encoding": "gzip"}))
    assert "'gzip' encoding, which was not asked for" in failed(ask)[0]


def test_cut_connection_is_not_tried_again(endpoint, say, ask):
    endpoint.plays(say.cut, say.answer("never asked for"))
    assert failed(ask)[1]
    assert len(endpoint.bodies) == 1


def test_nobody_there_is_said_with_what_to_look_at(endpoint, ask):
    told, retryable = failed(ask, base_url="http://127.0.0.1:9/v1")
    assert "http://127.0.0.1:9/v1 cannot be reached" in told
    assert "see whether it runs and base_url is right" in told
    assert retryable


def test_endpoint_that_hangs_is_left_in_time(endpoint, say, ask, ctx):
    endpoint.plays(say.hang)
    told, retryable = failed(ask, "Hi", ctx(0.2))
    assert "did not answer in time; raise the model's timeout_ms" in told
    assert retryable
    assert endpoint.left.wait(10)


def test_no_time_left_asks_nobody(endpoint, ask, ctx):
    assert failed(ask, "Hi", ctx(0)) == ("no time is left to ask the model; raise timeout_ms", True)
    assert endpoint.bodies == []


# --- when to ask again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry_after": "7"}, 7), ({"retry_after_ms": "1500"}, 1.5), ({"retry_after": "0"}, 0), ({}, None)],
)
def test_provider_asks_once_and_says_when_to_ask_again(endpoint, say, ask, headers, seconds):
    endpoint.plays(say.error(429, **headers), say.answer("never asked for"))
    with pytest.raises(Failed) as caught:
        ask()
    assert (caught.value.retryable, caught.value.retry_after) == (True, seconds)
    assert len(endpoint.bodies) == 1


def test_endpoint_may_forbid_to_ask_again(endpoint, say, ask):
    endpoint.plays(say.error(500, x_should_retry="false"))
    assert not failed(ask)[1]


# --- the environment --------------------------------------------------------------------------------------------------

LEAKS = {
    "OPENAI_API_KEY": "sk-from-the-environment",
    "OPENAI_ADMIN_KEY": "sk-admin",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/elsewhere",
    "OPENAI_ORG_ID": "org-env",
    "OPENAI_PROJECT_ID": "proj-env",
    "OPENAI_CUSTOM_HEADERS": "x-leak: 1\nAuthorization: Bearer sk-env\nUser-Agent: env",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "http://127.0.0.1:9",
    "SSL_CERT_FILE": "/nonexistent",
}


@pytest.mark.parametrize("key", ["main", None])
def test_environment_changes_nothing(endpoint, say, ask, monkeypatch, key):
    for name, value in LEAKS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    endpoint.plays(say.answer())
    assert ask(key=key)["text"] == "Hello!"
    (sent,) = endpoint.headers
    named = {"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"}
    assert sent.keys() == named | ({"authorization"} if key else set())
    assert sent["user-agent"] == "deedbook-provider-openai"
    assert sent.get("authorization") == (f"Bearer {say.KEY}" if key else None)


# --- cancellation -----------------------------------------------------------------------------------------------------


def test_cancelled_call_closes_its_connection(endpoint, say, ask, ctx):
    endpoint.plays(say.hang)

    class Cancelling(ctx):
        def remaining(self) -> float:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()

            def cancel_once_asked() -> None:
                task.cancel() if endpoint.bodies else loop.call_later(0.01, cancel_once_asked)

            loop.call_soon(cancel_once_asked)  # before that there is no connection: the SDK may still be imported
            return 30.0

    with pytest.raises(asyncio.CancelledError):
        ask("Hi", Cancelling())
    assert endpoint.left.wait(10)


def chain(problem):
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


@pytest.mark.parametrize("action", ["cut", "error"])
def test_key_is_in_no_exception_behind_the_failure_and_in_no_log(endpoint, say, ask, caplog, action):
    caplog.set_level("DEBUG")
    endpoint.plays(say.cut if action == "cut" else say.error(400))
    with pytest.raises(Failed) as caught:
        ask()
    behind = list(chain(caught.value))
    assert behind == [caught.value]  # nothing of the SDK hangs on it
    assert say.KEY not in repr(vars(caught.value))
    assert caplog.records
    assert say.KEY not in caplog.text
