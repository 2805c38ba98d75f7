"""`guard`: the tools of a Python program pass the door, with and without a workspace."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from deedbook import DeedbookError
from deedbook.format.errors import BindingError, SourceError
from deedbook.format.reader import read
from deedbook_guard import CallDenied, guard
from deedbook_guard.conversation import ResultWithheld
from deedbook_testing.soundness import assert_sound

WORKSPACE = """
schema_version: v1
agents:
  shop:
    kind: program
    unknown_tools: allow
    tools:
      look: {effects: read}
      refund:
        effects: write
        schema_in:
          type: object
          required: [order]
          properties: {order: {type: string}, amount: {type: integer}}
      drop: {effects: irreversible}
policies:
  baseline:
    kind: rules
    rules:
      - {match: {abilities: [shop/drop]}, then: deny, reason: nothing is dropped}
    default: allow
"""


@pytest.fixture
def shop(tmp_path):
    """Give a function that makes a workspace of the program `shop`, with changes, and returns its guard."""
    made = []

    def make(*changes, **how):
        text = WORKSPACE
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / ".system").mkdir()
        (tmp_path / ".system/deedbook.yaml").write_text(text)
        made.append(guard("shop", workspace=tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.close()


def events(governed):
    """Return the events of all ended sessions: type and payload, in the order of the files."""
    governed.close()
    assert_sound(governed.workspace)
    places = sorted((governed.workspace / ".deedbook/sessions").iterdir(), key=lambda each: each.stat().st_mtime_ns)
    return [(event.type, event.payload) for place in places for event in read(place / ".events.jsonl")]


def types(governed):
    return [kind for kind, _ in events(governed) if kind.startswith("tool.")]


def test_allowed_call_runs_between_its_intent_and_its_outcome(shop):
    governed = shop()

    @governed.tool(effects="write")
    def refund(order, amount=1):
        return {"order": order, "amount": amount}

    assert refund("a7") == {"order": "a7", "amount": 1}
    found = [payload for kind, payload in events(governed) if kind in ("tool.call", "tool.result")]
    assert found[0] == {"tool_name": "shop/refund", "args": {"order": "a7", "amount": 1}}
    assert found[1]["result"] == {"order": "a7", "amount": 1}


def test_denied_call_does_not_run_and_says_why(shop):
    governed, ran = shop(), []
    with pytest.raises(CallDenied, match="nothing is dropped") as caught:
        governed.call("drop", {"table": "orders"}, ran.append)
    assert caught.value.error.code == "GATE_DENIED"
    assert not ran
    assert types(governed) == ["tool.denied"]


def test_observed_denial_is_recorded_and_the_call_runs(shop):
    governed, ran = shop(("schema_version: v1", "schema_version: v1\nenforcement: observe")), []
    governed.call("drop", {"table": "orders"}, ran.append)
    assert ran == [{"table": "orders"}]
    found = events(governed)
    (check,) = [payload for kind, payload in found if kind == "policy.check"]
    assert '"deny"' in json.dumps(check)


def test_invalid_arguments_do_not_run(shop):
    governed = shop()
    with pytest.raises(CallDenied, match="amount"):
        governed.call("refund", {"order": "a", "amount": "all"}, pytest.fail)


def test_failure_is_recorded_and_raised_again(shop):
    governed = shop()

    @governed.tool()
    def refund(order):
        raise ZeroDivisionError(order)

    with pytest.raises(ZeroDivisionError):
        refund("a7")
    (error,) = [payload for kind, payload in events(governed) if kind == "tool.error"]
    assert error["message"].endswith("ZeroDivisionError: a7")


@dataclass
class Page:
    """A result of a tool that is no JSON itself."""

    lines: list


def bomb(kind, levels=9, width=10):
    """Return few objects that unfold into ten thousand million values."""
    made = kind(["lol"] * width)
    for _ in range(levels):
        made = kind([made] * width)
    return made


@pytest.mark.parametrize("make", [lambda: {"a": bomb(list)}, lambda: bomb(tuple), lambda: [Page(bomb(list))] * 2])
def test_shared_objects_in_a_result_are_not_unfolded(shop, make):
    governed = shop()
    value = make()
    assert governed.call("look", {}, lambda _: value) is value
    (result,) = [payload["result"] for kind, payload in events(governed) if kind == "tool.result"]
    assert "more than 100000 values" in result["refused"]
    assert len(json.dumps(result)) < 10_000


def test_shared_objects_in_arguments_are_refused_before_the_tool_runs(shop):
    governed = shop()
    with pytest.raises(CallDenied, match="more than 100000 values"):
        governed.call("look", {"names": bomb(list)}, pytest.fail)
    assert types(governed) == ["tool.denied"]


@pytest.mark.parametrize(
    ("answer", "expected", "code"),
    [("allow", ["tool.call", "tool.result"], ""), ("ask", ["tool.denied"], "NEEDS_HUMAN"),
     ("deny", ["tool.denied"], "TOOL_NOT_FOUND")],
)  # fmt: skip
def test_unknown_tool_follows_the_workspace(shop, answer, expected, code):
    governed = shop(("unknown_tools: allow", f"unknown_tools: {answer}"))
    if code:
        with pytest.raises(CallDenied) as denied:
            governed.call("ship", {"order": "a"}, pytest.fail)
        assert denied.value.error.code == code
        assert bool(denied.value.approval) == (code == "NEEDS_HUMAN")
    else:
        assert governed.call("ship", {"order": "a"}, dict) == {"order": "a"}
    found = [(kind, payload) for kind, payload in events(governed) if kind.startswith("tool.")]
    assert [kind for kind, _ in found] == expected
    if answer == "allow":
        assert found[0][1] == {"tool_name": "shop/other", "args": {"tool": "ship", "input": {"order": "a"}}}


def test_lower_effects_in_the_workspace_than_in_the_program_are_refused(shop):
    governed = shop()
    with pytest.raises(BindingError, match=r"look.*effects write.*read"):

        @governed.tool(effects="write")
        def look():
            """Never called."""


@pytest.mark.parametrize("name", ["generator", "asynchronous"])
def test_generators_are_refused(shop, name):
    governed = shop()

    def generator():
        yield 1

    async def asynchronous():
        yield 1

    with pytest.raises(BindingError, match="generator goes on"):
        governed.tool()({"generator": generator, "asynchronous": asynchronous}[name])


def test_undeclared_program_is_refused_with_the_line_to_add(shop, tmp_path):
    shop()
    with pytest.raises(BindingError, match=r"agents: \{bank: \{kind: program\}\}"):
        guard("bank", workspace=tmp_path)


def test_coroutines_and_threads_lose_nothing(shop):
    governed = shop()

    @governed.tool(effects="read")
    async def look(number):
        await asyncio.sleep(0)
        return number

    @governed.tool(effects="write")
    def refund(order):
        return order

    async def several():
        return await asyncio.gather(*(look(number) for number in range(40)))

    def in_thread():
        for _ in range(5):
            refund("a")

    threads = [threading.Thread(target=in_thread) for _ in range(4)]
    for each in threads:
        each.start()
    assert asyncio.run(several()) == list(range(40))
    for each in threads:
        each.join(30)
    kinds = types(governed)
    assert kinds.count("tool.call") == kinds.count("tool.result") == 60


def test_cancelled_task_closes_its_call(shop):
    governed = shop()

    async def run():
        begun = asyncio.Event()

        @governed.tool(effects="write")
        async def refund(order):
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(refund("a"))
        await asyncio.wait_for(begun.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    (error,) = [payload for kind, payload in events(governed) if kind == "tool.error"]
    assert error["outcome"] == "cancelled"


def test_conversations_are_sessions_of_their_own_also_at_the_same_time(shop):
    governed = shop()

    @governed.tool(effects="read")
    async def look(number):
        await asyncio.sleep(0)
        return governed.current.id

    async def talk(number):
        with governed.conversation(f"talk {number}") as conversation:
            found = await asyncio.gather(*(look(number) for _ in range(3)))
            assert set(found) == {conversation.id}
            return conversation.id

    async def several():
        return await asyncio.gather(*(talk(number) for number in range(20)))

    assert len(set(asyncio.run(several()))) == 20
    assert types(governed).count("tool.result") == 60


def test_object_without_json_is_recorded_as_text_and_given_as_it_is(shop):
    governed, seen = shop(), []

    @dataclass
    class Order:
        number: int

    class Connection:
        def __repr__(self):
            return "a connection"

    connection = Connection()
    made = governed.call("look", {"order": Order(3), "on": connection}, lambda args: seen.append(args) or connection)
    assert made is connection
    assert seen[0]["on"] is connection
    ((_, call), (_, result)) = [each for each in events(governed) if each[0] in ("tool.call", "tool.result")]
    assert call["args"]["order"] == {"number": 3}
    assert call["args"]["on"]["text"] == result["result"]["text"] == "a connection"


def test_arguments_that_the_ledger_cannot_hold_are_refused(shop):
    governed = shop()
    with pytest.raises(CallDenied, match=r"nan|finite|NaN"):
        governed.call("look", {"x": float("nan")}, pytest.fail)


def test_result_that_a_schema_refuses_is_withheld(shop):
    governed = shop(("effects: read}", "effects: read, hooks: {post_call: [gone]}}"), ("policies:", HOOKS))
    with pytest.raises(ResultWithheld):
        governed.call("look", {}, lambda _: "secret")


HOOKS = """
hooks:
  gone: {event_type: PostToolUse, handler: {script: [/bin/false]}}
policies:"""


def test_first_run_without_a_workspace_observes_and_says_where(tmp_path):
    """One process, as a new user would begin: the folder of the record is printed once, and the record is sound.

    The guard is gone before the process ends.
    """
    program = """
from deedbook import guard
def main():
    governed = guard("shop")
    @governed.tool(effects="write")
    def refund(order): return order
    refund("a7")
main()
guard("shop")
"""
    (tmp_path / "empty").mkdir()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "empty", env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    place = tmp_path / "state/deedbook/shop"
    assert ran.stderr.count(str(place)) == 1
    assert "name it: guard('shop', workspace=…)" in ran.stderr
    assert not list((tmp_path / "empty").iterdir())
    (session,) = (place / ".deedbook/sessions").iterdir()
    found = {event.type: event.payload for event in read(session / ".events.jsonl")}
    assert found["bridge.told"]["said"]["policy"] == "no policy in force"
    assert found["tool.call"]["args"] == {"tool": "refund", "input": {"order": "a7"}}
    assert found["session.end"]["ok"] is True
    assert json.dumps(found["tool.result"]["result"]) == '"a7"'


def test_unknown_tools_count_as_writes_at_least(shop):
    with pytest.raises(SourceError, match="at least write"):
        shop(("look: {effects: read}", "look: {effects: read}\n      other: {effects: read}"))


def test_forked_process_does_not_write_into_the_session_of_its_parent(shop):
    """A conversation that began before is refused; calls outside of one get a session of the child."""
    governed = shop()
    conversation = governed.conversation()
    governed.call("look", {"n": 1}, dict)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(DeedbookError, match="another process"):
                conversation.call("look", {"n": 2}, dict)
            status = 0 if governed.call("look", {"n": 3}, dict) == {"n": 3} else 2
            governed.current.end()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    conversation.end()
    calls = [payload["args"]["n"] for kind, payload in events(governed) if kind == "tool.call"]
    assert sorted(calls) == [1, 3]


def test_program_in_another_folder_is_governed_by_the_workspace_that_the_environment_names(shop, tmp_path, monkeypatch):
    shop()
    (elsewhere := tmp_path.parent / f"{tmp_path.name}-elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("DEEDBOOK_WORKSPACE", str(tmp_path))
    with guard("shop", state=elsewhere) as governed, pytest.raises(CallDenied, match="nothing is dropped"):
        governed.call("drop", {}, pytest.fail)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("named", ["", "elsewhere", "/nowhere/at/all"])
def test_environment_that_names_no_workspace_is_an_error(tmp_path, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEDBOOK_WORKSPACE", named)
    with pytest.raises(DeedbookError):
        guard("shop", state=tmp_path)
    assert not list(tmp_path.iterdir())


def test_given_workspace_that_does_not_exist_is_not_replaced(tmp_path):
    with pytest.raises(SourceError):
        guard("shop", workspace=tmp_path)
    with pytest.raises(DeedbookError):
        guard("../shop", state=tmp_path)
    assert not list(tmp_path.iterdir())
