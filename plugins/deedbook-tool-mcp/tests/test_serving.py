"""Abilities served as tools: what is listed, what calls come to, who is denied what, and what is recorded of it."""

import asyncio
import json
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError
from mcp.shared.tool_name_validation import validate_tool_name

from deedbook import DeedbookError, DomainError, Failed, deny
from deedbook_tool_mcp.serving.names import build_tool_name, index_by_tool_name
from deedbook_tool_mcp.serving.results import build_wrong_arguments
from deedbook_tool_mcp.serving.sessions import Connection
from deedbook_tool_mcp.serving.tools import PAGE, build_annotations, merge_schemas, wrap_schema

MODES = ("legacy", "2026-07-28")
"""One with a handshake (2025-11-25), and one where every request stands alone."""
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ERROR = "deedbook/error"


@pytest.fixture
def shop(lab):
    """Give a lab with tools that echo, count, fail, and are denied."""
    lab.tool("say/echo", lambda args, ctx: args, takes=TEXT, gives=TEXT)
    lab.tool("count", lambda args, ctx: len(args.get("text", "")), gives={"type": "integer"}, effects="read")
    lab.tool("fail", lambda args, ctx: (_ for _ in ()).throw(Failed("SHOP_SHUT", "come back tomorrow")))
    lab.tool("burn", lambda args, ctx: None, effects="irreversible")
    lab.hook("guard", "PreToolUse", lambda call: deny("nothing burns here"), match={"abilities": "burn"})
    return lab


def listed(served, mode="2026-07-28"):
    return {tool.name: tool for tool in served.to(lambda client: client.list_tools(), mode).tools}


# --- names ----------------------------------------------------------------------------------------------------------

SEGMENT = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True)
IDS = st.lists(SEGMENT, min_size=1, max_size=5).map("/".join)


@given(st.lists(IDS, unique=True, max_size=20))
def test_every_ability_has_a_name_of_its_own_that_the_protocol_allows(ids):
    named = index_by_tool_name(ids)
    assert sorted(named.values()) == sorted(ids)
    assert all(validate_tool_name(name).is_valid for name in named)


@given(IDS, st.lists(IDS, max_size=5))
def test_name_of_an_ability_depends_on_no_other(ability, others):
    named = {ability: name for name, ability in index_by_tool_name({ability, *others}).items()}
    assert named[ability] == build_tool_name(ability)


def test_names_that_differ_only_in_how_segments_are_joined_stay_apart():
    assert build_tool_name("git/git_status") == "git__git_status"
    assert len({build_tool_name(name) for name in ("a/b", "a__b", "a_/b", "a___b")}) == 4


def test_two_abilities_whose_names_would_clash_are_refused():
    with pytest.raises(DeedbookError, match="would both be the tool"):
        index_by_tool_name(["a__b", build_tool_name("a__b").replace("__", "/")])


# --- what is listed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_listed_in_one_order_with_schemas_and_hints(shop, mode, serve):
    tools = listed(serve(), mode)
    assert list(tools) == ["burn", "count", "fail", "say__echo"]
    echo = tools["say__echo"]
    assert (echo.description, echo.input_schema, echo.output_schema) == ("say/echo.", TEXT, TEXT)
    assert echo.annotations.read_only_hint is True
    count = tools["count"].output_schema
    assert count == {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    burn = tools["burn"].annotations
    assert (burn.read_only_hint, burn.destructive_hint, burn.idempotent_hint) == (False, True, False)


@pytest.mark.parametrize(
    ("effects", "tags", "hints"),
    [
        ("none", [], (True, None, None, False)),
        ("read", [], (True, None, None, True)),
        ("read", ["closed-world"], (True, None, None, False)),
        ("write", [], (False, True, False, True)),
        ("write", ["additive", "idempotent", "closed-world"], (False, False, True, False)),
        ("irreversible", ["additive"], (False, True, False, True)),
        ("none", ["open-world"], (True, None, None, True)),
    ],
)
def test_hints_come_from_effects_and_tags(effects, tags, hints):
    said = build_annotations(effects, tags)
    assert (said.read_only_hint, said.destructive_hint, said.idempotent_hint, said.open_world_hint) == hints


def test_schema_in_narrows_what_is_shown(shop, serve):
    shop.tool(
        "narrow", lambda args, ctx: 1, takes={**TEXT, "properties": {**TEXT["properties"], "n": {"type": "integer"}}},
        schema_in={"properties": {"text": {"enum": ["a"]}}, "required": ["n", "text"]},
    )  # fmt: skip
    shown = listed(serve())["narrow"].input_schema
    assert shown["properties"] == {"text": {"enum": ["a"]}, "n": {"type": "integer"}}
    assert shown["required"] == ["n", "text"]
    assert merge_schemas(TEXT, None) == TEXT


def test_references_of_a_schema_lead_to_the_same_place_once_it_is_wrapped():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "items": {"$ref": "#/$defs/item"},
        "$defs": {"item": {"anyOf": [{"type": "string", "const": {"$ref": "#/kept"}}, {"$ref": "#"}]}},
    }  # fmt: skip
    inner = wrap_schema(schema)["properties"]["result"]
    assert inner["items"] == {"$ref": "#/properties/result/$defs/item"}
    first, second = inner["$defs"]["item"]["anyOf"]
    assert (first["const"], second) == ({"$ref": "#/kept"}, {"$ref": "#/properties/result"})
    assert "$schema" not in inner


def test_long_lists_come_page_by_page_and_made_up_cursors_are_refused(lab, serve):
    names = [f"tool-{number:04}" for number in range(PAGE + 5)]
    lab.tool(names[0], lambda args, ctx: 1)
    lab.settings(abilities={name: {"summary": name, "handler": {"tool": f"offered-{names[0]}"}} for name in names})

    async def pages(client):
        first = await client.list_tools()
        second = await client.list_tools(cursor=first.next_cursor)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_tools(cursor="made-up")
        return [first, second]

    first, second = serve().to(pages)
    assert [tool.name for page in (first, second) for tool in page.tools] == names
    assert (len(first.tools), second.next_cursor) == (PAGE, None)


# --- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_call_goes_through_the_door_and_is_recorded_on_the_clients_account(shop, mode, serve):
    served = serve()
    result = served.call("say__echo", {"text": "hi"}, mode)
    assert (result.is_error, result.structured_content) == (False, {"text": "hi"})
    assert json.loads(result.content[0].text) == {"text": "hi"}
    start, call = shop.one("session.start", served.session), shop.one("tool.call", served.session)
    assert start.payload["principal"] == {"id": "agent:mcp", "via": "mcp", "roles": [], "on_behalf_of": "local"}
    assert (call.actor, call.principal, call.payload["tool_name"]) == ("agent", "agent:mcp", "say/echo")
    assert served.types()[-1] == "session.end"


def test_result_that_is_no_object_stands_in_one(shop, serve):
    result = serve().call("count", {"text": "four"})
    assert (result.structured_content, result.content[0].text) == ({"result": 4}, "4")


def test_own_id_of_an_ability_is_understood_as_a_name(shop, serve):
    assert serve().call("say/echo", {"text": "hi"}).structured_content == {"text": "hi"}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("burn", "GATE_DENIED", "hook guard, .system/deedbook.yaml:30: nothing burns here"),
        ("fail", "SHOP_SHUT", "come back tomorrow"),
    ],
)
def test_refusal_and_failure_are_results_with_the_code_and_the_reason(shop, name, code, said, serve):
    served = serve()
    result = served.call(name)
    assert result.is_error
    assert f"{said} [{code}]" in result.content[0].text
    assert result.meta[ERROR] == {"code": code, "message": said, "retryable": False}
    assert served.types()[-2] in ("tool.denied", "tool.error")


@pytest.mark.parametrize("name", ["nope", "model/standard", "", "x" * 5000, "say/ echo", "../../etc/passwd"])
def test_unknown_tool_is_an_error_of_the_protocol_and_recorded(shop, name, serve):
    served = serve()
    with pytest.raises(MCPError) as problem:
        served.call(name)
    assert (problem.value.error.code, problem.value.error.data) == (-32602, {"code": "TOOL_NOT_FOUND"})
    assert shop.payload("tool.denied", served.session)["code"] in ("TOOL_NOT_FOUND", "TOOL_NOT_ALLOWED")


@pytest.mark.parametrize("mode", MODES)
def test_arguments_that_do_not_fit_are_for_the_model_to_mend(shop, mode, serve):
    served = serve()
    result = served.call("say__echo", {"text": 1}, mode)
    assert (result.is_error, result.meta[ERROR]["code"]) == (True, "SCHEMA_VIOLATION")
    assert "$.text" in result.content[0].text
    assert "schema.violation" in served.types()


def test_arguments_that_do_not_fit_were_the_protocols_error_before():
    error, faults = DomainError("gate", "SCHEMA_VIOLATION", "$.a: no"), [{"path": "$.a", "message": "no"}]
    assert build_wrong_arguments(error, "2025-11-25", faults).is_error
    for version in ("2024-11-05", "2025-03-26", "2025-06-18"):
        with pytest.raises(MCPError) as problem:
            build_wrong_arguments(error, version, faults)
        assert (problem.value.error.code, problem.value.error.data["errors"]) == (-32602, faults)


@pytest.mark.parametrize("value", [2**60, 1e20, {"$sealed": "x"}])
def test_arguments_that_no_record_can_hold_are_refused(shop, value, serve):
    served = serve()
    result = served.call("count", {"text": "", "n": value})
    assert result.meta[ERROR]["code"] == "INTAKE_REFUSED"
    assert served.types()[1:-1] == ["tool.denied"]


def test_result_that_breaks_its_schema_does_not_reach_the_client(lab, serve):
    lab.tool("liar", lambda args, ctx: {"text": 1}, gives=TEXT)
    result = serve().call("liar")
    assert (result.is_error, result.structured_content) == (True, None)
    assert result.meta[ERROR]["code"] == "SCHEMA_VIOLATION"


# --- who sees what --------------------------------------------------------------------------------------------------


def test_client_sees_and_may_call_only_what_is_exposed_to_it(shop, serve):
    shop.settings(agents={"reader": {"expose": {"effects": ["read"]}}})
    served = serve(client="reader")
    assert list(listed(served)) == ["count"]
    with pytest.raises(MCPError, match="Unknown tool"):
        served.call("say__echo", {"text": "hi"})
    assert shop.payload("tool.denied", served.session)["code"] == "TOOL_NOT_ALLOWED"


def test_client_that_nobody_declared_is_refused(shop, serve):
    with pytest.raises(DeedbookError, match="'redaer' is not declared"):
        serve(client="redaer")


# --- content --------------------------------------------------------------------------------------------------------

CONTENT = {
    "type": "object",
    "required": ["content"],
    "properties": {"content": {"type": "array", "items": {"type": "object", "required": ["type"]}}},
}


def test_result_in_mcps_own_form_is_passed_on_as_it_is(lab, serve):
    blocks = [{"type": "text", "text": "hi"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}]
    lab.tool("draw", lambda args, ctx: {"content": blocks}, gives=CONTENT)
    served = serve()
    assert listed(served)["draw"].output_schema is None
    result = served.call("draw")
    assert [block.type for block in result.content] == ["text", "image"]
    assert (result.content[1].data, result.is_error) == ("aGk=", False)


def test_result_that_only_looks_like_mcps_own_form_is_told_as_text(lab, serve):
    lab.tool("draw", lambda args, ctx: {"content": [{"type": "hologram"}]}, gives=CONTENT)
    (block,) = serve().call("draw").content
    assert json.loads(block.text) == {"content": [{"type": "hologram"}]}


def test_structured_content_of_mcps_own_form_has_its_own_schema_again(lab, serve):
    inner = {"type": "object", "properties": {"text": {"$ref": "#/properties/structuredContent/$defs/t"}},
             "$defs": {"t": {"type": "string"}}}  # fmt: skip
    gives = {**CONTENT, "required": ["content", "structuredContent"]}
    gives["properties"] = {**CONTENT["properties"], "structuredContent": inner}
    blocks = [{"type": "text", "text": "hi"}]
    lab.tool("draw", lambda args, ctx: {"content": blocks, "structuredContent": {"text": "hi"}}, gives=gives)
    served = serve()
    assert listed(served)["draw"].output_schema["properties"] == {"text": {"$ref": "#/$defs/t"}}
    assert served.call("draw").structured_content == {"text": "hi"}


# --- meanwhile ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_a_handler_shows_arrives_as_progress_that_only_grows(lab, mode, serve):
    def work(args, ctx):
        for delta in ({"progress": 0, "total": 100}, {"progress": 50, "total": 100, "message": "half"}, "nearly", 7):
            ctx.progress(delta)
        return 1

    lab.tool("slow", work)
    seen = []

    async def show(progress, total, message):
        seen.append((progress, total, message))

    async def call(client):
        result = await client.call_tool("slow", {}, progress_callback=show)
        await anyio.sleep(0.05)
        return result

    assert serve().to(call, mode).structured_content == {"result": 1}
    assert seen[:3] == [(0, 100, None), (50, 100, "half"), (51, None, "nearly")]


def test_plain_handlers_run_side_by_side_and_their_progress_is_not_mixed_up(lab, serve):
    together = []

    def work(args, ctx):
        together.append(args["n"])
        until = time.monotonic() + 20
        while len(together) < 8 and time.monotonic() < until:
            time.sleep(0.005)
        ctx.progress(f"call {args['n']}")
        return args["n"]

    lab.tool("meet", work)
    told = {}

    async def one(client, number):
        async def show(_progress, _total, message):
            told.setdefault(number, []).append(message)

        return (await client.call_tool("meet", {"n": number}, progress_callback=show)).structured_content["result"]

    async def all_of_them(client):
        return await asyncio.gather(*(one(client, number) for number in range(8)))

    assert serve().to(all_of_them) == list(range(8))
    assert all(messages == [f"call {number}"] for number, messages in told.items())


def test_handler_that_ends_its_process_ends_one_call(lab, serve):
    def leave(args, ctx):
        raise {"stop": KeyboardInterrupt, "exit": SystemExit}[args["how"]]

    lab.tool("leave", leave)
    lab.tool("stay", lambda args, ctx: 1)
    served = serve()

    async def both(client):
        with pytest.raises(MCPError, match="Internal error"):
            await client.call_tool("leave", {"how": "stop"})
        assert (await client.call_tool("leave", {"how": "exit"})).is_error
        return await client.call_tool("stay", {})

    assert served.to(both).structured_content == {"result": 1}
    assert served.types().count("tool.error") == 2


def test_cancelled_call_is_recorded_as_cancelled(lab, serve):
    begun = []

    async def forever(args, ctx):
        begun.append(1)
        await asyncio.sleep(60)

    lab.tool("forever", forever, effects="write", interruptible=True)
    served = serve()

    async def give_up(client):
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "forever", {})
            while not begun:  # noqa: ASYNC110 - set by another thread
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    served.to(give_up, "legacy")
    assert lab.payload("tool.error", served.session)["outcome"] == "cancelled"


# --- sessions of connections ----------------------------------------------------------------------------------------


def test_session_in_which_nothing_happens_is_ended_and_the_next_call_begins_another(lab, serve):
    lab.tool("count", lambda args, ctx: 1)
    sessions, here = serve().sessions, Connection("local", "here")
    first = sessions.take(here).value
    sessions.end_idle(0)
    assert not first.ended, "a call is under way"
    sessions.release(here)
    sessions.end_idle()
    assert (first.ended, sessions.take_open(here).value is first) == (False, True)
    sessions.release(here)
    sessions.end_idle(0)
    assert (first.ended, sessions.take_open(here)) == (True, None)
    second = sessions.take(here).value
    assert second.id != first.id
    assert sessions.take(Connection("ada", "here")).value.id not in (first.id, second.id)


def test_no_session_begins_once_the_server_ends(lab, serve):
    sessions = serve().sessions
    begun = sessions.take(Connection("local")).value
    sessions.close()
    assert begun.ended
    assert sessions.take(Connection("local")).error.code == "SESSION_ENDED"


# --- flows that keep a context ---------------------------------------------------------------------------------------


def test_flow_gives_its_state_and_reply_as_the_listing_says(lab, serve):
    lab.flow("check", lambda args, run: "no mistakes", takes={"type": "object"})
    served = serve()
    result = served.call("check")
    assert not result.is_error
    assert result.structured_content["state"] == "COMPLETED"
    assert result.structured_content["reply"] == "no mistakes"
    assert sorted(listed(served)["check"].output_schema["required"]) == sorted(result.structured_content)


@pytest.mark.parametrize(
    ("state", "code"), [("FAILED", "RUN_ENDED"), ("HALTED", "RUN_ENDED"), ("NEEDS_HUMAN", "NEEDS_HUMAN")]
)
def test_flow_that_did_not_complete_is_an_error(lab, serve, state, code):
    lab.flow("check", lambda args, run: {"reply": "no reader agreed", "state": state}, takes={"type": "object"})
    result = serve().call("check")
    assert result.is_error
    assert result.meta[ERROR]["code"] == code
    assert f"ended {state}: no reader agreed" in result.content[0].text
