"""What the gate costs a call over MCP: the same call, by the same client to the same server, through a bare proxy.

Client, gate or proxy, and server are three processes that speak over pipes. All four ways take turns in one run.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.rounds import Plan, Times

if TYPE_CHECKING:
    from mcp import Client

_SIDE: Final = Path(__file__).with_name("mcpside.py")
_ALONE: Final = (sys.executable, "-P", str(_SIDE))  # not beside this file, whose name is the library's
_SERVER: Final = [*_ALONE, "server"]
_PROXY: Final = [*_ALONE, "proxy", *_SERVER]
_DEEDBOOK: Final = [sys.executable, "-c", "from deedbook.cli.program import main; main()"]
_ROUNDS: Final = 500
_WARM: Final = 30
_ARGS: Final = {"text": "hello"}
_WAYS: Final = {
    "direct": "a call without anything between",
    "proxy": "a call through a bare proxy",
    "gate": "a call through the gate",
    "durable": "a call through the gate that writes",
    "sync": "an fdatasync",
}
_SETTINGS: Final[dict[str, Any]] = {
    "schema_version": "v1",
    "servers": {"up": {"command": _SERVER, "tools": {"echo": {"effects": "none"}, "keep": {"effects": "write"}}}},
    "policies": {"baseline": {"kind": "rules", "rules": [{"match": {"abilities": ["up/*"]}, "then": "allow"}]}},
    "hooks": {"allow": {"event_type": "PreToolUse", "handler": {"hook": "allow"}, "match": {"kind": "tool"}}},
}


def run(plan: Plan) -> Iterator[Line]:
    """Measure calls without effects, and calls that write, whose intent is durable before."""
    if find_spec("mcp") is None:
        yield missing("a call over MCP", "mcp")
        return
    import anyio

    times: Times = anyio.run(_measured, plan.size(_WARM, 1), plan.size(_ROUNDS, 3))
    gated = times.ratio("gate", "proxy")
    yield Measure("MCP: a gated call, effects none: to a bare proxy's, elapsed", "at most", 1.3, gated)
    writing = times.ratio_to_sum("durable", "proxy", "sync")
    yield Measure("MCP: one that writes: to a bare proxy's and an fdatasync, elapsed", "at most", 1.3, writing)
    for way, name in _WAYS.items():
        yield Value(f"MCP: {name}: elapsed", times.micros(way).times(1e-3), "ms")


async def _measured(warm: int, rounds: int) -> Times:
    """Call each way in turn, *rounds* times."""
    async with AsyncExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="deedbook-bench-")))
        _workspace(folder)
        direct = await held.enter_async_context(_client(_SERVER))
        proxy = await held.enter_async_context(_client(_PROXY))
        gate = await held.enter_async_context(_client([*_DEEDBOOK, "-C", str(folder), "mcp", "serve"]))
        named = {each.name.rpartition("echo")[1] or "keep": each.name for each in (await gate.list_tools()).tools}
        ways = {
            "direct": (direct, "echo"),
            "proxy": (proxy, "echo"),
            "gate": (gate, named["echo"]),
            "durable": (gate, named["keep"]),
        }
        file = held.enter_context((folder / "sync").open("wb", buffering=0))
        times: dict[str, list[float]] = {name: [] for name in (*ways, "sync")}
        for turn in range(warm + rounds):
            for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
                times[name].append(await _called(*ways[name]))
            times["sync"].append(_synced(file.fileno()))
    return Times({name: each[warm:] for name, each in times.items()})


async def _called(client: "Client", tool: str) -> float:
    begun = perf_counter_ns()
    result = await client.call_tool(tool, _ARGS)
    took = perf_counter_ns() - begun
    if result.is_error or result.structured_content != _ARGS:
        raise RuntimeError(f"{tool} answered {result}")
    return took


def _synced(fd: int) -> float:
    begun = perf_counter_ns()
    os.write(fd, b"x" * 400)
    os.fdatasync(fd)
    return perf_counter_ns() - begun


@asynccontextmanager
async def _client(command: list[str]) -> "AsyncIterator[Client]":
    from mcp import Client, StdioServerParameters

    async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
        await client.list_tools()
        yield client


def _workspace(folder: Path) -> None:
    """Write a workspace whose abilities are the server's tools, and pin what the server lists."""
    (folder / ".system").mkdir()
    (folder / ".system" / "deedbook.yaml").write_text(json.dumps(_SETTINGS), encoding="utf-8")
    subprocess.run([*_DEEDBOOK, "-C", str(folder), "lock", "--yes"], check=True, capture_output=True)
