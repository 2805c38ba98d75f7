"""Calls inside calls: what a handler may use, on whose account, how deep, and until when."""

import pytest

from deedbook import Failed, Ok, deny
from deedbook.policy.judge import MAX_NESTING


def failure(function, *args, **more):
    """Call what has to fail; return its `Failed`."""
    with pytest.raises(Failed) as caught:
        function(*args, **more)
    return caught.value


def test_nested_call_is_scoped_by_what_the_caller_declares_to_use(lab):
    lab.tool("inner", lambda args, ctx: "inner")
    lab.tool("other", lambda args, ctx: "other")
    lab.tool("outer", lambda args, ctx: ctx.call(args["name"], {}), uses=["inner"])
    lab.tool("none", lambda args, ctx: ctx.call("inner", {}))
    with lab.session() as session:
        assert session.call("outer", {"name": "inner"}) == Ok("inner")
        assert session.call("outer", {"name": "other"}).error.code == "TOOL_NOT_ALLOWED"
        assert session.call("outer", {"name": "outer"}).error.code == "TOOL_NOT_ALLOWED"
        assert session.call("none", {}).error.code == "TOOL_NOT_ALLOWED"
    assert {event.payload["by"]["scope"] for event in lab.all("tool.denied")} == {
        "what outer declares to use",
        "what none declares to use",
    }


def test_nested_call_is_a_child_span_of_the_same_principal_done_by_a_tool(lab):
    seen = []
    lab.tool("inner", lambda args, ctx: seen.append((ctx.principal.id, ctx.session)))
    lab.tool("outer", lambda args, ctx: ctx.call("inner", args), uses=["inner"])
    with lab.session() as session:
        session.call("outer", {})
    outer, inner = lab.all("tool.call")
    assert (inner.parent, inner.actor, inner.principal) == (outer.span, "tool", "local")
    assert seen == [("local", session.id)]


def test_nested_call_passes_the_same_gates(lab):
    lab.tool("inner", lambda args, ctx: pytest.fail("denied"))
    lab.tool("outer", lambda args, ctx: ctx.call("inner", args), uses=["inner"])
    lab.hook("no", "PreToolUse", lambda call: deny("not this one"), match={"abilities": ["inner"]})
    with lab.session() as session:
        assert session.call("outer", {}).error.code == "GATE_DENIED"
    denied = lab.one("tool.denied")
    assert denied.parent == lab.one("tool.call").span
    assert lab.payload("tool.error")["code"] == "GATE_DENIED"


def test_nested_failure_is_the_handlers_to_catch(lab):
    lab.tool("inner", lambda args, ctx: 1 / 0)

    def outer(args, ctx):
        try:
            ctx.call("inner", {})
        except Failed as problem:
            return problem.code

    lab.tool("outer", outer, uses=["inner"])
    with lab.session() as session:
        assert session.call("outer", {}) == Ok("TOOL_ERROR")


def test_nesting_has_an_end(lab):
    lab.tool("again", lambda args, ctx: ctx.call("again", {}), uses=["again"])
    with lab.session() as session:
        assert session.call("again", {}).error.code == "TOOL_NOT_ALLOWED"
    assert len(lab.all("tool.call")) == MAX_NESTING + 1
    assert "nested" in lab.payload("tool.denied")["reason"]


def test_tool_reaches_no_model_that_it_does_not_declare_to_use(lab):
    lab.model(lambda request, ctx: "hi")
    lab.tool("sly", lambda args, ctx: ctx.call("model/standard", {}), uses=[])
    with lab.session() as session:
        assert session.call("sly", {}).error.code == "TOOL_NOT_ALLOWED"
    assert "llm.request" not in lab.types()


def test_tool_reaches_a_model_that_it_declares_to_use(lab):
    request = {"messages": [{"role": "user", "content": "hi"}], "model": "m", "schema_version": "v2"}
    lab.model(lambda request, ctx: "hello")
    lab.tool("wise", lambda args, ctx: ctx.call("model/standard", request)["text"], uses=["model/standard"])
    with lab.session() as session:
        assert session.call("wise", {}) == Ok("hello")
    assert lab.one("llm.request").parent == lab.one("tool.call").span


def test_handler_that_kept_its_context_can_ask_for_nothing_after_its_call(lab):
    kept = []
    lab.tool("inner", lambda args, ctx: pytest.fail("the call is over"))
    lab.tool("outer", lambda args, ctx: kept.append(ctx), uses=["inner"])
    with lab.session() as session:
        session.call("outer", {})
        assert failure(kept[0].call, "inner", {}).code == "TOOL_NOT_ALLOWED"


def test_progress_reaches_the_caller_and_not_the_record(lab):
    seen = []
    lab.tool("act", lambda args, ctx: ctx.progress({"percent": 50}))
    with lab.session(show=seen.append) as session:
        session.call("act", {})
    assert seen == [{"percent": 50}]
    assert b"percent" not in lab.ledger().read_bytes()


def test_key_of_a_call_is_the_handlers_for_what_must_not_happen_twice(lab):
    keys = []
    lab.tool("act", lambda args, ctx: keys.append(ctx.idempotency_key))
    with lab.session() as session:
        session.call("act", {})
        session.call("act", {})
    assert keys == [f"{session.id}:{event.span}" for event in lab.all("tool.call")]
