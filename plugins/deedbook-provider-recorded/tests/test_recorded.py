"""A recorded answer is served to the request that it was given to, in order, and to no other."""

import json
from hashlib import sha256

import pytest

from deedbook import Failed
from deedbook_provider_recorded.matching import compared, differences


def request(text, **more):
    return {"messages": [{"role": "user", "content": text}], "model": "m-1", "schema_version": "v2", **more}


def response(text, **more):
    usage = {"input_tokens": 1, "output_tokens": 2}
    said = {"text": text, "tool_calls": [], "finish_reason": "stop", "usage": usage, "model": "m-1", **more}
    return {**said, "schema_version": "v2"}


def failure(ask, asked):
    with pytest.raises(Failed) as caught:
        ask(asked)
    return caught.value


def test_request_gets_the_answer_that_it_got(recording, serve, tmp_path):
    recording.ask(request("a"), response("A"))
    recording.ask(request("b"), response("B"))
    recording.write(tmp_path)
    ask = serve()
    assert [ask(request(text))["text"] for text in ("b", "a")] == ["B", "A"]


def test_equal_requests_get_their_answers_in_order_and_no_more(recording, serve, tmp_path):
    for answer in ("first", "second"):
        recording.ask(request("a", temperature=0), response(answer))
    recording.write(tmp_path)
    ask = serve()
    reordered = dict(reversed(request("a", temperature=0.0).items()))
    assert [ask(reordered)["text"] for _ in range(2)] == ["first", "second"]
    found = failure(ask, reordered)
    assert (found.code, str(found)) == ("NOT_RECORDED", "r.jsonl: all recorded answers to this request were served")


def test_attempts_beneath_a_request_are_no_questions_of_their_own(recording, serve, tmp_path):
    for text in ("first", "second"):
        outer = recording.add("llm.request", {"ability": "model/mid", "request": request("a")}, recording.root)
        for number in range(2):
            span = recording.add("llm.request", {"ability": "model/small", "request": request("a")}, outer)
            failed = {"code": "PROVIDER_ERROR", "message": "busy", "retryable": True}
            recording.end(span, *([response(text)] if number else []), **({} if number else failed))
        recording.end(outer, response(text, usage={"input_tokens": 0, "output_tokens": 0}))
    recording.write(tmp_path)
    ask = serve()
    served = [ask(request("a")) for _ in range(2)]
    assert [each["text"] for each in served] == ["first", "second"]
    assert served[0]["usage"] == {"input_tokens": 1, "output_tokens": 2}
    assert failure(ask, request("a")).code == "NOT_RECORDED"


def test_request_that_was_never_made_is_told_what_differs_from_the_nearest(recording, serve, tmp_path):
    recording.ask(request("far away", role="lead", tools=[]), response("x"))
    recording.ask(request("Say hello to Ada", role="worker"), response("y"))
    recording.write(tmp_path)
    found = failure(serve(), request("Say hello to Eve", role="worker", max_tokens=9))
    assert found.code == "NOT_RECORDED"
    assert "the nearest is event 3: " in str(found)
    assert "/max_tokens: recorded nothing, asked 9" in str(found)
    assert '/messages/0/content: recorded "Say hello to Ada", asked "Say hello to Eve"' in str(found)


def test_what_may_differ_is_said_by_the_settings(recording, serve, tmp_path):
    recording.ask(request("a", skill={"name": "s", "description": "old", "metadata": {}}), response("A"))
    recording.write(tmp_path)
    other = {**request("a", skill={"name": "s", "description": "new", "metadata": {}}), "model": "m-2"}
    assert "/model: recorded" in str(failure(serve(), other))
    assert serve(ignore=["/model", "/skill/description", "/none/0"])(other)["text"] == "A"
    assert serve(ignore=["/model", "/skill/*"])(other)["text"] == "A"
    assert serve(ignore=["/model", "/skill", "/messages/*/content"])(request("z", skill=None))["text"] == "A"


def test_request_of_version_1_is_the_one_that_it_was_raised_to(recording, serve, tmp_path):
    recording.ask({**request("a"), "schema_version": "v1"}, response("A"))
    recording.write(tmp_path)
    assert serve()(request("a"))["text"] == "A"


def test_recorded_error_is_served_and_a_lost_answer_is_told(recording, serve, tmp_path):
    recording.ask(request("a"), code="RATE", message="too many", retryable=True)
    recording.ask(request("b"))
    recording.write(tmp_path)
    ask = serve()
    found = failure(ask, request("a"))
    assert (found.code, str(found), found.retryable) == ("RATE", "too many", True)
    assert str(failure(ask, request("b"))) == "r.jsonl: event 3 was asked, and no answer was recorded"


def test_sealed_parts_are_opened_from_the_folder_beside(recording, serve, tmp_path):
    def seal(value):
        raw = b"s" * 32 + json.dumps(value).encode()
        name = sha256(raw).hexdigest()
        place = tmp_path / "kept" / "sealed" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)
        return {"$sealed": name, "size": len(raw) - 32}

    asked, gone = request(seal("a card")), request(seal("gone"))
    recording.ask(asked, seal(response("A")))
    recording.ask(gone, response("B"))
    recording.write(tmp_path, "kept/.events.jsonl")
    (tmp_path / "kept" / "sealed" / gone["messages"][0]["content"]["$sealed"]).unlink()
    ask = serve(ledger="kept")
    assert ask(request("a card"))["text"] == "A"
    assert "1 recorded requests cannot be read any more" in str(failure(ask, request("gone")))
    place = tmp_path / "kept" / "sealed" / asked["messages"][0]["content"]["$sealed"]
    place.write_bytes(b"s" * 32 + b'"another"')
    assert "is not what the ledger commits to" in str(failure(serve(ledger="kept"), request("a card")))


def test_answer_whose_bytes_were_taken_out_is_not_served(recording, serve, tmp_path):
    recording.ask(request("a"), response("A"))
    raw = recording.write(tmp_path).read_bytes().splitlines(keepends=True)
    payload = raw[2].split(b'"payload":', 1)[1][:-2]
    out = b'{"$excised":"%b"}' % sha256(payload).hexdigest().encode()
    (tmp_path / "r.jsonl").write_bytes(b"".join([*raw[:2], raw[2].replace(payload, out)]))
    assert "its payload was taken out of the ledger" in str(failure(serve(), request("a")))


BAD = {
    "absent": (None, "cannot be read"),
    "no ledger": (b"oops\n", "does not begin as a ledger of format 1.1"),
    "older": (b'{"event_type":"session.start","payload":{}}\n', "does not begin as a ledger of format 1.1"),
    "no line": (b'{"schema_version":"1.1","session_id":"x"}\n', "line 1 is not what was written"),
    "empty": (b"", "holds no request to a model"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_file_that_is_no_ledger_fails(serve, tmp_path, raw, message):
    if raw is not None:
        (tmp_path / "r.jsonl").write_bytes(raw)
    assert message in str(failure(serve(), request("a")))


@pytest.mark.parametrize("twice", [b'{"request":{},"request":{}}', b'{"request":NaN}', b'{"request":"\\ud800"}'])
def test_line_that_intake_refuses_is_not_served(recording, serve, tmp_path, twice):
    recording.add("llm.request", twice, recording.root)
    recording.write(tmp_path)
    told = failure(serve(), request("a"))
    assert told.code == "INTAKE_REFUSED"
    assert "is no ledger that can be served" in str(told)


@pytest.mark.parametrize(
    "change", [(b"AAA", b"BBB"), (b'"seq":1', b'"seq":9'), (b'"actor":"agent"', b'"actor":"polic"')]
)
def test_recording_that_was_changed_is_not_served(recording, serve, tmp_path, change):
    recording.ask(request("a"), response("AAA"))
    place = recording.write(tmp_path)
    place.write_bytes(place.read_bytes().replace(*change))
    assert "is not what was written" in str(failure(serve(), request("a")))
    place.write_bytes(b"".join([recording.lines[0], *recording.lines[2:]]))
    assert "line 2 is not what was written" in str(failure(serve(), request("a")))


def test_long_values_are_shown_where_they_part():
    (found,) = differences("x" * 500 + "a", "x" * 500 + "b")
    assert len(found.recorded) < 130
    assert found.recorded.endswith('a"')
    assert str(differences({}, {"a~/b": 1})[0]) == "/a~0~1b: recorded nothing, asked 1"


def test_pointers_lead_into_lists():
    assert compared({"a": [{"b": 1, "c": 2}, {"b": 3}]}, ["/a/0/b", "/a/1"]) == {"a": [{"c": 2}, None]}
    assert compared({"a": 1}, ["/a/b", "/b", "/*/c"]) == {"a": 1}
