"""A transcript serves each role its own responses, in order, and never more than it holds."""

import json

import pytest

from deedbook import Failed
from deedbook_provider_rules import Transcript


def entry(role, text, **more):
    return {"role": role, "response": {"text": text, **more}}


@pytest.fixture
def play(tmp_path, host, model_of):
    """Return what writes entries to a file and returns a model that plays it."""

    def made(entries, *, lines=True):
        raw = "\n".join(map(json.dumps, entries)) + "\n" if lines else json.dumps(entries, indent=2)
        (tmp_path / "t.jsonl").write_text(raw)
        return model_of(Transcript({"path": "t.jsonl"}, host))

    return made


def say(model, role):
    return model.complete({"messages": [{"role": "user", "content": "{}"}], "role": role})


@pytest.mark.parametrize("lines", [True, False])
def test_each_role_gets_its_own_responses_in_order(play, lines):
    model = play([entry("lead", "l1"), entry("worker", "w1"), entry("lead", "l2"), entry("worker", "w2")], lines=lines)
    assert [say(model, role)["text"] for role in ("worker", "lead", "worker", "lead")] == ["w1", "l1", "w2", "l2"]


def test_entry_without_a_role_serves_any(play):
    model = play([{"response": {"text": "any"}}, entry("lead", "l1")])
    assert [say(model, role)["text"] for role in ("lead", "lead")] == ["any", "l1"]


def test_response_may_be_given_in_part(play):
    response = say(play([entry("worker", "", tool_calls=[{"id": "t1", "name": "echo", "args": {}}])]), "worker")
    assert response["finish_reason"] == "tool_use"
    assert response["model"] == "rules-1"
    assert response["usage"]["output_tokens"] > 1


def test_response_given_whole_is_played_as_it_is(play):
    whole = {
        "text": "x",
        "tool_calls": [],
        "finish_reason": "safety",
        "usage": {"input_tokens": 7, "output_tokens": 9, "cost_usd": 0.5},
        "model": "recorded-1",
        "schema_version": "v2",
    }
    assert say(play([{"role": "lead", "response": whole}]), "lead") == whole


def test_transcript_that_is_used_up_fails(play):
    model = play([entry("lead", "l1"), entry("worker", "w1")])
    say(model, "lead")
    with pytest.raises(Failed, match=r"t\.jsonl has no response left for role 'lead'") as caught:
        say(model, "lead")
    assert caught.value.code == "PROVIDER_ERROR"


BAD = {
    "absent": (None, "cannot be read"),
    "no JSON": ("oops\n", "is not JSON or JSON Lines"),
    "half an array": ("[{", "is not JSON or JSON Lines"),
    "too deep": ("[" * 100_000, "is not JSON or JSON Lines"),
    "a key twice": ('{"response": {"text": "a", "text": "b"}}', "is not JSON or JSON Lines"),
    "no response": ('{"role": "lead"}\n', 'entry 1 has no object "response"'),
    "second is a text": ('{"response": {}}\n"x"\n', 'entry 2 has no object "response"'),
    "empty": ("", "no response left"),
}


@pytest.mark.parametrize(("raw", "message"), BAD.values(), ids=BAD)
def test_file_that_is_no_transcript_fails(tmp_path, host, model_of, raw, message):
    if raw is not None:
        (tmp_path / "t.jsonl").write_text(raw)
    with pytest.raises(Failed, match=message) as caught:
        say(model_of(Transcript({"path": "t.jsonl"}, host)), "lead")
    assert caught.value.code == ("INTAKE_REFUSED" if "JSON Lines" in message else "PROVIDER_ERROR")
