"""The door from coroutines: what is awaited, what a time limit ends, and what a cancellation leaves in the record."""

import asyncio
import threading
import time

import pytest

from deedbook import Err, Failed, Ok


def run(made):
    return asyncio.run(made)


@pytest.fixture
def acting(lab):
    """Declare an asynchronous tool; return a function that begins a session with it."""

    def declare(function, **more):
        lab.tool("act", function, **more)
        return lab.session()

    return declare


# --- the same way through ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effects", ["none", "write"])
def test_acall_writes_what_call_writes(lab, acting, effects):
    async def act(args, ctx):
        await asyncio.sleep(0)
        return args

    session = acting(act, effects=effects)
    assert run(session.acall("act", {"n": 1})) == Ok({"n": 1})
    assert session.call("act", {"n": 1}) == Ok({"n": 1})
    assert lab.types()[1:3] == lab.types()[3:5] == ["tool.call", "tool.result"]


@pytest.mark.parametrize("durability", ["always", "boundary", "os"])
def test_acall_works_in_every_mode_of_durability(lab, acting, durability):
    lab.settings(profile="p", profiles={"p": {"durability": durability}})
    session = acting(lambda args, ctx: args, effects="write")
    assert run(session.acall("act", {"n": 1})) == Ok({"n": 1})
    assert run(session.acall("unknown", {})).error.code == "TOOL_NOT_FOUND"


def test_acall_awaits_the_disk_beside_the_loop(acting):
    """While one call's intent is being made durable, other tasks go on."""
    loops = []

    def disk(fd):
        loops.append(threading.current_thread() is threading.main_thread())

    session = acting(lambda args, ctx: None, effects="write")
    session.ledger._journal._fdatasync = disk
    run(session.acall("act", {}))
    assert loops[0] is False


def test_acall_after_the_end_is_refused(lab, acting):
    session = acting(lambda args, ctx: None)
    session.end(ok=True, reason="done")
    assert run(session.acall("act", {})).error.code == "SESSION_ENDED"


def test_tasks_call_at_the_same_time_each_with_its_own_answer(lab, acting):
    async def act(args, ctx):
        await asyncio.sleep(0.001 * (args["n"] % 3))
        return args["n"]

    session = acting(act)

    async def all_of_them():
        return await asyncio.gather(*(session.acall("act", {"n": n}) for n in range(50)))

    assert [each.value for each in run(all_of_them())] == list(range(50))


def test_sync_call_of_an_asynchronous_tool_works_inside_a_running_loop(acting):
    async def act(args, ctx):
        await asyncio.sleep(0.001)
        return "done"

    session = acting(act)

    async def busy():
        return session.call("act", {})

    assert run(busy()) == Ok("done")


def test_nested_acall_is_a_child_of_the_call(lab, acting):
    async def act(args, ctx):
        return await ctx.acall("inner", {})

    lab.tool("inner", lambda args, ctx: "inner")
    session = acting(act, uses=["inner"])
    assert run(session.acall("act", {})) == Ok("inner")
    outer, inner = lab.all("tool.call")
    assert inner.parent == outer.span


def test_nested_acall_that_is_refused_raises_for_the_handler(lab, acting):
    async def act(args, ctx):
        with pytest.raises(Failed) as caught:
            await ctx.acall("inner", {})
        return caught.value.code

    lab.tool("inner", lambda args, ctx: "inner")
    assert run(acting(act).acall("act", {})) == Ok("TOOL_NOT_ALLOWED")


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["call", "acall"])
def test_limit_ends_an_interruptible_handler_and_is_recorded(lab, acting, way):
    ended = []

    async def act(args, ctx):
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(ctx.remaining())

    session = acting(act, interruptible=True, timeout_ms=20)
    got = session.call("act", {}) if way == "call" else run(session.acall("act", {}))
    assert got.error.code == "TOOL_TIMEOUT"
    error = lab.payload("tool.error")
    assert (error["outcome"], error["code"]) == ("timed_out", "TOOL_TIMEOUT")
    assert "0.02 s" in error["message"]
    assert len(ended) == 1
    assert ended[0] <= 0


def test_time_out_of_a_handlers_own_is_a_failure_not_our_limit(lab, acting):
    async def act(args, ctx):
        raise TimeoutError("the server took too long")

    session = acting(act, interruptible=True, timeout_ms=60_000)
    assert session.call("act", {}).error.code == "TOOL_ERROR"
    assert lab.payload("tool.error")["outcome"] == "failed"


def test_handler_that_cannot_be_interrupted_may_be_late(lab, acting):
    async def act(args, ctx):
        await asyncio.sleep(0.02)
        return 1

    assert run(acting(act, timeout_ms=1).acall("act", {})) == Ok(1)
    assert lab.payload("tool.result")["late"] is True


def test_call_that_timed_out_can_ask_for_nothing_any_more(lab, acting):
    kept = []

    async def act(args, ctx):
        kept.append(ctx)
        await asyncio.sleep(30)

    lab.tool("inner", lambda args, ctx: kept.append("ran"))
    session = acting(act, uses=["inner"], interruptible=True, timeout_ms=10)
    session.call("act", {})
    with pytest.raises(Failed) as caught:
        kept[0].call("inner", {})
    assert caught.value.code == "TOOL_NOT_ALLOWED"
    assert len(kept) == 1
    assert lab.payload("tool.denied")["by"] == {"scope": "a call that is over"}


# --- cancellation -----------------------------------------------------------------------------------------------------


def test_cancelled_task_is_recorded_and_stays_cancelled(lab, acting):
    told = []

    async def act(args, ctx):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    session = acting(act)

    async def cancel():
        task = asyncio.ensure_future(session.acall("act", {}))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert told == ["cancelled"]
    error = lab.payload("tool.error")
    assert (error["outcome"], error["code"]) == ("cancelled", "CANCELLED")
    assert session.door.open == {}


def test_task_cancelled_while_its_intent_is_made_durable_begins_nothing(lab, acting):
    ran, reached, go_on = [], threading.Event(), threading.Event()

    def disk(fd):
        reached.set()
        go_on.wait(5)

    session = acting(lambda args, ctx: ran.append(1), effects="write")
    session.ledger._journal._fdatasync = disk

    async def cancel():
        task = asyncio.ensure_future(session.acall("act", {}))
        await asyncio.to_thread(reached.wait, 5)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert ran == []
    assert lab.types()[1:] == ["tool.call", "tool.error"]
    assert lab.payload("tool.error")["outcome"] == "cancelled"


def test_handler_that_cancels_itself_is_an_error_for_its_caller_not_a_cancellation_of_it(lab, acting):
    async def act(args, ctx):
        raise asyncio.CancelledError

    session = acting(act)
    assert isinstance(session.call("act", {}), Err)
    assert isinstance(run(session.acall("act", {})), Err)
    assert [event.payload["outcome"] for event in lab.all("tool.error")] == ["cancelled", "cancelled"]


def test_interrupt_is_recorded_and_goes_on(lab, acting):
    def act(args, ctx):
        raise KeyboardInterrupt

    session = acting(act)
    with pytest.raises(KeyboardInterrupt), session:
        session.call("act", {})
    assert lab.types()[1:] == ["tool.call", "tool.error", "session.end"]
    assert lab.payload("tool.error")["outcome"] == "cancelled"
    assert lab.payload("session.end") == {"ok": False, "reason": "interrupted"}


def test_interrupt_inside_nested_calls_closes_each_of_them(lab, acting):
    def stop(args, ctx):
        raise KeyboardInterrupt

    lab.tool("inner", stop)
    session = acting(lambda args, ctx: ctx.call("inner", {}), uses=["inner"])
    with pytest.raises(KeyboardInterrupt), session:
        session.call("act", {})
    assert [event.payload["tool_name"] for event in lab.all("tool.error")] == ["inner", "act"]


def test_handler_in_another_thread_is_told_that_its_call_was_cancelled(lab, acting):
    seen = []

    def act(args, ctx):
        try:
            raise KeyboardInterrupt
        finally:
            watcher = threading.Thread(target=lambda: (time.sleep(0.02), seen.append(ctx.remaining())))
            watcher.start()
            seen.append(watcher)

    session = acting(act)
    with pytest.raises(KeyboardInterrupt):
        session.call("act", {})
    seen[0].join()
    assert seen[1] == 0.0
