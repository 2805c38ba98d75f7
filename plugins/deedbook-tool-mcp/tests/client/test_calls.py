"""Calls of a server's tools: shared, limited, recorded; the server sees what it is given and nothing else."""

import asyncio
import json
import os
import re
import threading

import pytest

from deedbook.format.errors import DeedbookError, Ok


def test_tool_is_an_ability_whose_call_is_recorded(rogue):
    rogue.does(say="echo")
    assert json.loads(rogue.text("say", word="hello")) == {"word": "hello"}
    assert rogue.lab.payload("tool.call")["tool_name"] == "rogue/say"
    assert rogue.lab.payload("tool.call")["args"] == {"word": "hello"}
    assert rogue.lab.payload("tool.result")["result"]["content"][0]["type"] == "text"


def test_server_sees_nothing_of_the_environment_but_what_it_is_given(rogue, monkeypatch):
    monkeypatch.setenv("GH", "hunter2hunter2")
    monkeypatch.setenv("OTHER", "must not be seen")
    (rogue.lab.path / "sub").mkdir()
    rogue.lab.settings(secrets={"gh": {"env": "GH"}})
    rogue.lists({"name": "env", "inputSchema": {"type": "object"}}, do={"env": "env"})
    rogue.declared(env={"TOKEN": {"secret": "gh"}, "PLAIN": "yes"}, cwd="sub").pinned()
    seen = json.loads(rogue.text("env"))
    assert seen.pop("cwd") == str(rogue.lab.path / "sub")
    assert seen.pop("TOKEN") == "[secret:gh]", "a server that repeats a secret is not quoted"
    seen.pop("LC_CTYPE", None)  # Python's own
    assert seen == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "PLAIN": "yes",
    }
    written = [path.read_bytes() for path in rogue.lab.path.rglob("*") if path.is_file()]
    assert not [raw for raw in written if b"hunter2hunter2" in raw]


def test_secret_without_a_value_is_a_binding_error(rogue, monkeypatch):
    monkeypatch.delenv("GH", raising=False)
    rogue.does(say="echo")
    rogue.lab.settings(secrets={"gh": {"env": "GH"}}, servers={"rogue": {"env": {"TOKEN": {"secret": "gh"}}}})
    with pytest.raises(DeedbookError) as caught:
        rogue.pinned()
    assert caught.value.error.code == "SECRET_MISSING"


def test_calls_share_one_server_and_run_at_the_same_time(rogue):
    rogue.does(slow="slow", pid="pid")
    session = rogue.lab.session()
    pids, threads = [], []
    for _ in range(6):
        work = threading.Thread(target=lambda: pids.append(session.call("rogue/slow", {})))
        threads.append(work)
        work.start()
    for thread in threads:
        thread.join()
    told = {result.value["content"][0]["text"] for result in pids}
    assert told == {session.call("rogue/pid", {}).value["content"][0]["text"]}
    assert len(rogue.starts) == 1


def test_asynchronous_calls_do_not_hold_up_their_event_loop(rogue):
    rogue.does(slow="slow")
    session = rogue.lab.session()

    async def main():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        beating = asyncio.create_task(beat())
        results = await asyncio.gather(*(session.acall("rogue/slow", {}) for _ in range(3)))
        beating.cancel()
        return beats, results

    beats, results = asyncio.run(main())
    assert beats > 5
    assert all(isinstance(result, Ok) for result in results)


def test_kernel_that_closes_ends_the_server(rogue):
    rogue.does(pid="pid")
    pid = int(rogue.text("pid"))
    os.kill(pid, 0)
    rogue.lab.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not [thread for thread in threading.enumerate() if thread.name == "deedbook-mcp"]


def test_timeout_tells_the_server_that_the_call_is_given_up_and_keeps_it(rogue):
    rogue.lists({"name": "hang", "inputSchema": {"type": "object"}}, {"name": "pid", "inputSchema": {"type": "object"}},
                do={"hang": "hang", "pid": "pid"})  # fmt: skip
    rogue.declared(tools={"hang": {"timeout_ms": 300}}).pinned()
    pid = rogue.text("pid")
    error = rogue.fails("hang")
    assert error.code == "TOOL_TIMEOUT"
    assert re.search(
        r"rogue: hang: no answer within 0\.[0-9]+ s, all that was left of the limit of the call \(`timeout_ms`\)",
        error.message,
    )
    assert "its outcome is unknown" in error.message
    assert rogue.lab.payload("tool.error")["outcome"] == "unknown"
    assert rogue.text("pid") == pid
    (given_up,) = rogue.heard("notifications/cancelled")
    assert given_up["params"]["requestId"] == rogue.heard("tools/call")[1]["id"]


def test_server_that_hears_nothing_any_more_is_late_and_killed_at_the_end(rogue):
    rogue.lists({"name": "deaf", "inputSchema": {"type": "object"}}, do={"deaf": "deaf"})
    rogue.declared(timeout_ms=300, tools={"deaf": {"effects": "read"}}).pinned()
    assert rogue.fails("deaf").code == "TOOL_TIMEOUT"
    assert rogue.lab.payload("tool.error")["outcome"] == "failed"
    rogue.lab.close()
    with pytest.raises(ProcessLookupError):
        os.kill(rogue.starts[0], 0)


def test_asynchronous_call_is_late_at_its_limit(rogue):
    rogue.lists({"name": "hang", "inputSchema": {"type": "object"}}, do={"hang": "hang"})
    rogue.declared(timeout_ms=300).pinned()
    session = rogue.lab.session()
    assert asyncio.run(session.acall("rogue/hang", {})).error.code == "TOOL_TIMEOUT"
