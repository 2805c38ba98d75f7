"""Requests to models that a program sends itself: judged, recorded and counted like those of a profile."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program
from deedbook.format.errors import BindingError, SourceError
from deedbook.format.reader import read
from deedbook_guard import CallDenied, completions, guard
from deedbook_guard.conversation import ResultWithheld
from deedbook_guard.values import as_json
from deedbook_testing.soundness import assert_sound

WORKSPACE = """
schema_version: v1
agents:
  shop: {kind: program, unknown_tools: UNKNOWN, tools: {look: {effects: read}}}
policies:
  baseline:
    kind: rules
    match: {kind: [tool, model]}
    rules:
      - {match: {kind: model, args: {/model: big}}, then: deny, reason: too dear}
    default: allow
"""
REQUEST = completions.request("small", [completions.message("user", "hello")])


def answer(**more):
    return completions.response("small-1", "hi", usage={"input_tokens": 3, "output_tokens": 2}, **more)


@pytest.fixture
def shop(tmp_path):
    """Give a function that makes a workspace of the program `shop` and returns its guard."""
    made = []

    def make(more="", unknown="allow"):
        (tmp_path / ".system").mkdir()
        (tmp_path / ".system/deedbook.yaml").write_text(WORKSPACE.replace("UNKNOWN", unknown) + more)
        made.append(guard("shop", workspace=tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def events(governed):
    """Return the events of the ended sessions, after `verify` found no fault."""
    governed.close()
    assert_sound(governed.workspace)
    places = sorted((governed.workspace / ".deedbook/sessions").glob("*/.events.jsonl"))
    return [event for place in places for event in read(place)]


def of_models(governed):
    return [event for event in events(governed) if event.type.startswith("llm.") or event.type == "tool.denied"]


def test_request_and_answer_are_recorded_with_usage(shop):
    governed = shop()
    assert governed.current.ask_model(REQUEST, lambda _: answer())["text"] == "hi"
    asked, answered = of_models(governed)
    assert (asked.type, asked.payload["ability"], asked.payload["request"]) == ("llm.request", "shop/model", REQUEST)
    assert answered.type == "llm.response"
    assert answered.payload["response"]["usage"] == {"input_tokens": 3, "output_tokens": 2}


def test_coroutine_asks_in_the_same_way(shop):
    governed = shop()

    async def perform(asked):
        assert asked == REQUEST
        return answer()

    asyncio.run(governed.current.aask_model(REQUEST, perform))
    assert [event.type for event in of_models(governed)] == ["llm.request", "llm.response"]


def test_denied_request_reaches_no_model(shop):
    governed = shop()
    with pytest.raises(CallDenied, match="too dear"):
        governed.current.ask_model({**REQUEST, "model": "big"}, lambda _: pytest.fail("the model was asked"))
    (denied,) = of_models(governed)
    assert (denied.type, denied.payload["name"], denied.payload["kind"]) == ("tool.denied", "shop/model", "model")


def test_model_that_fails_is_recorded(shop):
    governed = shop()
    with pytest.raises(ZeroDivisionError):
        governed.current.ask_model(REQUEST, lambda _: 1 / 0)
    with pytest.raises(TypeError):
        governed.current.ask_model(REQUEST, lambda _: None)
    found = of_models(governed)
    assert [event.type for event in found] == ["llm.request", "llm.error"] * 2
    assert found[1].payload["code"] == "PROVIDER_ERROR"


def test_answer_of_another_form_is_withheld(shop):
    governed = shop()
    with pytest.raises(ResultWithheld):
        governed.current.ask_model(REQUEST, lambda _: {**answer(), "more": 1})
    assert [event.type for event in of_models(governed)] == ["llm.request", "llm.response"]


def test_count_that_is_not_shown_is_estimated_and_noted(shop):
    governed = shop()
    conversation = governed.current
    permit = conversation.before_model(REQUEST)
    conversation.after_model(permit, completions.response("small", "x" * 40, usage={"input_tokens": 5}))
    found = events(governed)
    (answered,) = [event for event in found if event.type == "llm.response"]
    assert answered.payload["response"]["usage"] == {"input_tokens": 5, "output_tokens": 10}
    (noted,) = [event for event in found if event.payload.get("event") == "UsageEstimated"]
    assert noted.payload["said"] == {"counts": ["output_tokens"]}


def test_budget_counts_the_tokens_of_a_program(shop):
    budget = "  budget: {kind: budget, match: {kind: model}, limits: {calls: 1}}\n"
    governed = shop(budget)
    governed.current.ask_model(REQUEST, lambda _: answer())
    with pytest.raises(CallDenied, match="calls"):
        governed.current.ask_model(REQUEST, lambda _: answer())


CHANGE = 's/.*/{"decision":"transform","args":VALUE}/'


def test_account_and_statistics_count_what_programs_used(shop):
    """An account counts over conversations; `stats` shows the tokens of the program's model."""
    prices = "{shop/model: {input_per_million: 10, output_per_million: 100}}"
    governed = shop(
        "  money: {kind: budget, match: {kind: model}, per: principal, account: m, every: month,"
        f" limits: {{cost_usd: 0.001}}, prices: {prices}, assume: {{output_tokens: 1}}}}\n"
    )
    with governed.conversation() as first:
        first.ask_model(REQUEST, lambda _: answer())
    with governed.conversation() as second, pytest.raises(CallDenied, match=r"0\.00023"):
        second.ask_model({**REQUEST, "max_tokens": 100}, lambda _: answer())
    governed.close()
    ran = CliRunner().invoke(program, ["-C", str(governed.workspace), "stats", "--json"], obj=GlobalOptions())
    (row,) = json.loads(ran.output)["models"]
    names = ("provider", "model", "input_tokens", "output_tokens")
    assert [row[name] for name in names] == ["[unknown]", "small-1", 3, 2]


def changing(event, value, rewrites):
    """Return a hook that puts *value* in place of a request or an answer."""
    script = CHANGE.replace("VALUE", json.dumps(value).replace("/", "."))
    handler = json.dumps({"script": ["/bin/sed", script]})
    return f"hooks: {{change: {{event_type: {event}, handler: {handler}, match: {{kind: model}}{rewrites}}}}}\n"


def test_request_that_a_hook_changed_is_not_sent_by_a_framework(shop):
    """A program that sends the judged request may go on; a framework would send its own."""
    other = completions.request("other", REQUEST["messages"])
    governed = shop(changing("PreToolUse", other, ", rewrites: true"))
    seen = []
    governed.current.ask_model(REQUEST, lambda asked: seen.append(asked["model"]) or answer())
    assert seen == ["other"]
    with pytest.raises(CallDenied, match="a hook changed the request"):
        governed.current.before_model(REQUEST)
    assert [event.type for event in of_models(governed)] == ["llm.request", "llm.response", "llm.request", "llm.error"]


def test_answer_that_a_hook_changed_is_not_given_to_a_framework(shop):
    governed = shop(changing("PostToolUse", {**answer(), "text": "less"}, ""))
    conversation = governed.current
    assert conversation.ask_model(REQUEST, lambda _: answer())["text"] == "less"
    permit = conversation.before_model(REQUEST)
    with pytest.raises(ResultWithheld, match="a hook changed the answer"):
        conversation.after_model(permit, answer())


@pytest.mark.parametrize("unknown", ["allow", "deny"])
def test_tool_named_model_is_an_unknown_tool(shop, unknown):
    """Its name opens no way to the ability for models."""
    governed = shop(unknown=unknown)
    if unknown == "deny":
        with pytest.raises(CallDenied):
            governed.call("model", REQUEST, lambda _: pytest.fail("it ran"))
    else:
        assert governed.call("model", REQUEST, lambda _: "ran") == "ran"
    found = [event.type for event in of_models(governed)]
    assert found == (["tool.denied"] if unknown == "deny" else [])


@pytest.mark.parametrize(
    ("before", "after"),
    [("look: {effects", "model: {effects"), ("  shop: {kind", "  model: {kind")],
    ids=["tool", "agent"],
)
def test_name_of_models_is_refused(shop, monkeypatch, before, after):
    monkeypatch.setitem(globals(), "WORKSPACE", WORKSPACE.replace(before, after))
    with pytest.raises((SourceError, BindingError, ExceptionGroup), match="model"):
        shop()


def test_parts_of_messages_become_text():
    parts = [{"type": "text", "text": "see"}, {"type": "image", "data": "…"}, "this"]
    assert completions.message("user", parts) == {"role": "user", "content": "see\n[image]\nthis"}
    assert completions.tool_call(None, "find", '{"a": 1}', number=2) == {
        "id": "call_2",
        "name": "find",
        "args": {"a": 1},
    }
    assert completions.tool_call("c", "find", "[1]")["args"] == {"text": "[1]"}
    doubled = '{"a": 1, "a": 2}'
    assert completions.tool_call("c", "find", doubled)["args"] == {"text": doubled}
    assert completions.tool_call("c", "find", "{")["args"] == {"text": "{"}
    assert completions.tool_call("c", "find", {"id": 2**53 + 1})["args"] == {"text": '{"id": 9007199254740993}'}
    assert completions.tool_call("c", "find", {"rate": float("nan")})["args"] == {"text": '{"rate": NaN}'}
    assert completions.tool_call("c", "find", {"a": 1})["args"] == {"a": 1}
    assert completions.tool_offer("find", None, {"type": "object"}) == {"name": "find", "schema_in": {"type": "object"}}


def test_schema_with_a_bound_beyond_json_is_recorded_exactly_as_text():
    large = {"type": "integer", "maximum": 2**63 - 1}
    asked = completions.request("m", [], [completions.tool_offer("find", None, large), completions.tool_offer("look")])
    assert completions.recorded_request(asked)["tools"] == [
        {"name": "find", "schema_in": {"text": '{"type": "integer", "maximum": 9223372036854775807}'}},
        {"name": "look"},
    ]
    assert asked["tools"][0]["schema_in"] == large


def test_text_of_a_class_of_its_own_is_text():
    """Frameworks return texts and numbers of their own classes, which the ledger would refuse."""

    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    made = as_json({"text": Text("a"), "number": Number(2), "flag": True, "none": None, "part": 0.5})
    assert made == {"text": "a", "number": 2, "flag": True, "none": None, "part": 0.5}
    assert [type(each) for each in made.values()] == [str, int, bool, type(None), float]


def test_answer_says_why_the_model_stopped():
    call = completions.tool_call("c", "find", {})
    assert completions.response("m", "", [call], reason="stop")["finish_reason"] == "tool_use"
    assert completions.response("m", "x", reason="length")["finish_reason"] == "max_tokens"
    assert completions.response("m", "x", reason="content_filter")["finish_reason"] == "safety"
    assert completions.response("m", "x", usage={"input_tokens": 0, "output_tokens": 0})["usage"] == {}
