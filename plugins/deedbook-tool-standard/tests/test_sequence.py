"""Sequences in a real workspace: each step passes the door, and what is wired wrongly is refused."""

import pytest

from deedbook.format.errors import DeedbookError

IN = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "times": {"type": "integer"}}}
ANY = {"type": ["object", "array", "string", "number", "boolean", "null"]}


def sequence(lab, steps, *, name="both", **more):
    settings = {"steps": steps} | ({"result": more.pop("result")} if "result" in more else {})
    said = {
        "summary": "Do both.",
        "handler": {"tool": "sequence"},
        "with": settings,
        "effects": "write",
        "uses": ["upper", "join"],
        "schema_in": IN,
        "schema_out": ANY,
        **more,
    }
    lab.settings(abilities={name: {key: value for key, value in said.items() if value is not None}})


@pytest.fixture
def steps(lab):
    """Offer two abilities that can be put one after the other."""
    lab.tool("upper", lambda args, ctx: {"text": args["text"].upper(), "list": [{"a/b": 1}]})
    lab.tool("join", lambda args, ctx: args, effects="write")
    return lab


STEPS = [
    {"id": "up", "ability": "upper", "args": {"text": {"from": "/args/text"}}},
    {"id": "joined", "ability": "join", "args": {"a": {"from": "/steps/up/text"}, "b": ["x", {"from": "/args"}]}},
]


def done(lab, args, name="both"):
    return lab.session().call(name, args)


def test_steps_are_wired_by_pointers_and_the_last_result_is_given(steps):
    sequence(steps, STEPS)
    assert done(steps, {"text": "hi"}).value == {"a": "HI", "b": ["x", {"text": "hi"}]}


def test_each_step_is_a_call_of_its_own_under_the_sequence(steps):
    sequence(steps, STEPS)
    done(steps, {"text": "hi"})
    whole, *inner = steps.all("tool.call")
    assert [event.payload["tool_name"] for event in (whole, *inner)] == ["both", "upper", "join"]
    assert {event.parent for event in inner} == {whole.span}
    assert [event.payload["tool_name"] for event in steps.all("tool.result")] == ["upper", "join", "both"]


def test_result_is_a_value_with_references(steps):
    result = {"said": {"from": "/steps/up/text"}, "deep": {"from": "/steps/up/list/0/a~1b"}, "plain": 1}
    sequence(steps, STEPS, result=result)
    assert done(steps, {"text": "hi"}).value == {"said": "HI", "deep": 1, "plain": 1}


def test_literal_keeps_what_looks_like_a_reference(steps):
    plain = {"from": "/args/text"}
    sequence(steps, [{"id": "j", "ability": "join", "args": {"a": {"literal": plain}, "b": {"c": plain}}}])
    assert done(steps, {"text": "hi"}).value == {"a": plain, "b": {"c": "hi"}}


def test_default_stands_in_for_what_is_not_there(steps):
    times = {"from": "/args/times", "default": 1}
    sequence(steps, [{"id": "j", "ability": "join", "args": {"times": times}}])
    assert done(steps, {"text": "hi"}).value == {"times": 1}
    assert done(steps, {"text": "hi", "times": 3}).value == {"times": 3}


def test_first_failure_ends_it_with_its_code_and_its_step(steps):
    steps.policy("no", deny_upper)
    sequence(steps, STEPS)
    error = done(steps, {"text": "hi"}).error
    assert error.code == "GATE_DENIED"
    assert error.message.startswith("step up (upper): ")
    assert "join" not in [event.payload["tool_name"] for event in steps.all("tool.call")]


def deny_upper(call):
    from deedbook import allow, deny

    return deny("not up") if call.ability == "upper" else allow()


def test_what_was_done_before_a_failure_is_in_the_ledger(steps):
    def fail(args, ctx):
        raise ValueError("no")

    steps.tool("broken", fail)
    sequence(steps, [*STEPS, {"id": "third", "ability": "broken"}], uses=["upper", "join", "broken"])
    error = done(steps, {"text": "hi"}).error
    assert error.code == "TOOL_ERROR"
    assert error.message.startswith("step third (broken): broken: ValueError: no (")
    assert [event.payload["tool_name"] for event in steps.all("tool.result")] == ["upper", "join"]


def test_pointer_that_leads_nowhere_at_the_call_is_a_failure(steps):
    sequence(steps, STEPS, result={"from": "/steps/up/list/1"})
    error = done(steps, {"text": "hi"}).error
    assert (error.code, error.message) == ("SEQUENCE_FAILED", "'/steps/up/list/1' leads nowhere in what there is")


def step(**more):
    return {"id": "s", "ability": "join", **more}


FAULTS = {
    "an ability outside uses": ({"steps": [step(ability="echo")]}, "'echo' is not among what the ability may call"),
    "itself": ({"steps": [step(ability="both")], "uses": ["both"]}, "would call itself"),
    "a step twice": ({"steps": [step(), step()]}, "step 's' stands twice"),
    "a later step": (
        {"steps": [step(args={"a": {"from": "/steps/t"}}), step(id="t")]},
        "'/steps/t': step 't' comes later",
    ),
    "its own step": ({"steps": [step(args={"a": {"from": "/steps/s"}})]}, "step 's' comes later"),
    "an unknown step": ({"steps": [step(args={"a": {"from": "/steps/t"}})]}, "there is no step 't' before"),
    "an unknown step in the result": ({"steps": [step()], "result": [{"from": "/steps/t/x"}]}, "there is no step 't'"),
    "an unknown argument": ({"steps": [step(args={"a": {"from": "/args/txt"}})]}, "declares no property 'txt'"),
    "an optional argument": ({"steps": [step(args={"a": {"from": "/args/times"}})]}, "does not require 'times'"),
    "a pointer elsewhere": ({"steps": [step(args={"a": {"from": "/env/HOME"}})]}, "leads nowhere"),
    "a pointer without slash": ({"steps": [step(args={"a": {"from": "args"}})]}, "leads nowhere"),
    "an invalid escape": ({"steps": [step(args={"a": {"from": "/args/a~2"}})]}, "'/args/a~2' is no JSON pointer"),
    "a reference with more": ({"steps": [step(args={"a": {"from": "/args/text", "or": 1}})]}, "a reference is"),
    "lower effects": ({"steps": [step()], "effects": "read"}, "write effects: write (because of join)"),
    "no effects": ({"steps": [step()], "effects": None}, "write effects: write (because of join)"),
    "no schema_in": ({"steps": [step()], "schema_in": None}, "schema_in is missing"),
    "no schema_out": ({"steps": [step()], "schema_out": None}, "or write schema_out: true for anything"),
}


@pytest.mark.parametrize(("said", "why"), FAULTS.values(), ids=FAULTS)
def test_what_is_wired_wrongly_is_a_binding_error_with_its_place(steps, said, why):
    sequence(steps, **said)
    with pytest.raises(DeedbookError) as caught:
        steps.kernel()
    (error,) = caught.value.errors
    assert error.code == "BINDING_INVALID"
    assert why in error.message
    assert error.place.startswith(".system/deedbook.yaml:")


def test_place_of_a_fault_is_the_step_itself(steps):
    sequence(steps, [STEPS[0], step(args={"a": {"from": "/steps/nobody"}})])
    with pytest.raises(DeedbookError) as caught:
        steps.kernel()
    line = int(caught.value.error.place.split(":")[1])
    text = (steps.path / ".system/deedbook.yaml").read_text().splitlines()
    assert "/steps/nobody" in "".join(text[line - 1 : line + 2])


def test_sequences_that_call_each_other_come_to_an_end(steps):
    for name, other in (("both", "ping"), ("ping", "both")):
        sequence(steps, [step(ability=other, args={"text": "x"})], name=name, uses=[other])
    assert done(steps, {"text": "hi"}).error.code == "TOOL_NOT_ALLOWED"


def test_time_limit_ends_a_sequence_between_its_steps(steps):
    import asyncio

    async def slow(args, ctx):
        await asyncio.sleep(60)

    steps.tool("slow", slow, interruptible=True)
    sequence(steps, [step(ability="slow"), step(id="t")], uses=["slow", "join"], timeout_ms=200)
    assert done(steps, {"text": "hi"}).error.code == "TOOL_TIMEOUT"
    assert "join" not in [event.payload["tool_name"] for event in steps.all("tool.call")]
