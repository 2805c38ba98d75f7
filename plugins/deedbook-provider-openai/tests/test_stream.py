"""A stream shows its text as it comes, and ends in the same response as without one."""

import pytest

from deedbook import Failed


def failed(ask, *args, code="PROVIDER_ERROR"):
    with pytest.raises(Failed) as caught:
        ask(*args, stream=True)
    assert caught.value.code == code
    return str(caught.value), caught.value.retryable


def test_text_is_shown_as_it_comes_and_whole_at_the_end(endpoint, say, ask, ctx):
    parts = ["Grüß", " dich\u2028", "!"]
    said = [say.chunk({"content": part}) for part in parts]
    usage = say.chunk(None, usage=say.USAGE)
    endpoint.plays(
        say.sse(say.chunk({"role": "assistant", "content": ""}), *said, say.chunk({}, "stop"), usage, say.DONE)
    )
    here = ctx()
    made = ask("Hi", here, stream=True)
    assert here.shown == [{"text": part} for part in parts]
    assert made == {
        "text": "Grüß dich\u2028!",
        "tool_calls": [],
        "finish_reason": "stop",
        "usage": {"input_tokens": 9, "output_tokens": 12},
        "model": "gpt-x-2026-01-01",
        "schema_version": "v2",
    }
    assert endpoint.bodies[0]["stream"] is True
    assert endpoint.bodies[0]["stream_options"] == {"include_usage": True}
    assert endpoint.headers[0]["accept"] == "text/event-stream"


def piece(index, arguments, **more):
    name = more.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{**({} if index is None else {"index": index}), **more, "function": function}]}


@pytest.mark.parametrize("numbered", [True, False])
def test_tool_calls_are_put_together_from_their_pieces(endpoint, say, ask, numbered):
    first, second = (0, 1) if numbered else (None, None)
    pieces = [
        piece(first, "", id="call_1", type="function", name="echo"),
        piece(first, '{"te'),
        piece(first, 'xt":"a"}'),
        piece(second, '{"text":"b"}', id="call_2", type="function", name="echo"),
    ]
    endpoint.plays(say.sse(*map(say.chunk, pieces), say.chunk({}, "tool_calls"), say.DONE))
    made = ask(stream=True)
    assert [(each["id"], each["name"], each["args"]["text"]) for each in made["tool_calls"]] == [
        ("call_1", "echo", "a"),
        ("call_2", "echo", "b"),
    ]
    assert made["finish_reason"] == "tool_use"


def test_refusal_in_pieces_is_safety(endpoint, say, ask):
    endpoint.plays(
        say.sse(say.chunk({"refusal": "I "}), say.chunk({"refusal": "won't."}), say.chunk({}, "stop"), say.DONE)
    )
    made = ask(stream=True)
    assert (made["finish_reason"], made["text"]) == ("safety", "I won't.")


def test_comments_and_other_choices_are_passed_over(endpoint, say, ask, ctx):
    other = b'data: {"choices": [{"index": 1, "delta": {"content": "not me"}}]}\n\n'
    endpoint.plays(say.sse(b": ping\n\n", other, say.chunk({"content": "me"}), say.chunk({}, "stop"), say.DONE))
    here = ctx()
    assert ask("Hi", here, stream=True)["text"] == "me"
    assert here.shown == [{"text": "me"}]


def test_two_calls_with_one_number_are_no_answer(endpoint, say, ask):
    parts = [{"index": 0, **say.call("echo", "{}", each)} for each in ("call_a", "call_b")]
    chunks = [say.chunk({"tool_calls": [part]}) for part in parts]
    endpoint.plays(say.sse(*chunks, say.chunk({}, "tool_calls"), say.DONE))
    assert failed(ask) == (f"{endpoint.url}: the stream has two tool calls with the same number", True)


def test_what_stands_behind_the_end_is_passed_over(endpoint, say, ask):
    whole = say.chunk({"content": "so"}, "stop") + say.DONE
    endpoint.plays(*(say.sse(whole + rest) for rest in (say.chunk({"content": " far"}), b"data: {", b"\n")))
    assert [ask(stream=True)["text"] for _ in range(3)] == ["so"] * 3


def test_end_needs_no_line_of_its_own(endpoint, say, ask):
    endpoint.plays(say.sse(say.chunk({"content": "so"}, "stop"), say.DONE.rstrip()))
    assert ask(stream=True)["text"] == "so"


def test_stream_that_ends_too_early_is_no_answer(endpoint, say, ask):
    endpoint.plays(say.sse(say.chunk({"content": "so"}), say.DONE))
    assert failed(ask) == (f"{endpoint.url}: the stream ended before the answer was complete", True)


def test_stream_that_is_cut_is_no_answer(endpoint, say, ask):
    endpoint.plays(say.sse(say.chunk({"content": "so"}), cut=True))
    told, retryable = failed(ask)
    assert "cut the connection" in told
    assert retryable


@pytest.mark.parametrize(
    "garbage",
    [b"data: 5\n\n", b'data: {"choices": 5}\n\n', b'data: {"choices": [5]}\n\n',
     b'data: {"choices": [{"index": 0, "delta": 5}]}\n\n', b'data: {"choices": [{"delta": {"content": 5}}]}\n\n',
     b'data: {"choices": [{"delta": {"tool_calls": [5]}}]}\n\n'],
)  # fmt: skip
def test_garbage_in_a_stream_is_no_answer(endpoint, say, ask, garbage):
    endpoint.plays(say.sse(garbage, say.chunk({"content": "x"}, "stop"), say.DONE))
    told, retryable = failed(ask)
    assert "the stream" in told
    assert retryable


@pytest.mark.parametrize(
    "chunk",
    [b"{", b"\xff", b'{"choices": [{"delta": {"content": "\xff"}}]}',
     b'{"choices": [{"delta": {"content": "\\ud800"}}]}',
     b'{"choices": [], "choices": [{"delta": {"content": "x"}}]}', b'{"choices": [], "usage": NaN}'],
)  # fmt: skip
def test_chunk_that_intake_refuses_is_no_answer(endpoint, say, ask, chunk):
    endpoint.plays(say.sse(b"data: " + chunk + b"\n\n", say.chunk({"content": "x"}, "stop"), say.DONE))
    told, retryable = failed(ask, code="INTAKE_REFUSED")
    assert "the stream holds an event that is refused: " in told
    assert retryable


def test_error_in_a_stream_is_told(endpoint, say, ask):
    endpoint.plays(say.sse(say.chunk({"content": "so"}), b'data: {"error": {"message": "the engine stopped"}}\n\n'))
    assert "broke off its stream: the engine stopped" in failed(ask)[0]


def test_stream_that_breaks_off_is_not_asked_for_again(endpoint, say, ask, ctx):
    good = say.sse(say.chunk({"content": "good"}, "stop"), say.DONE)
    endpoint.plays(say.sse(say.chunk({"content": "half"}), cut=True), good)
    here = ctx()
    with pytest.raises(Failed, match="cut the connection") as caught:
        ask("Hi", here, stream=True)
    assert here.shown == [{"text": "half"}]
    assert caught.value.retryable
    assert len(endpoint.bodies) == 1


def test_refusal_of_a_stream_is_a_refusal(endpoint, say, ask):
    endpoint.plays(say.error(404, "no such model"))
    assert "does not know the model 'gpt-x'" in failed(ask)[0]
