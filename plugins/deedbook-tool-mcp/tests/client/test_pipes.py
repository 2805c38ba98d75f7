"""The transport over pipes: what ends leaves nothing behind that the next connection could stumble over."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, BinaryIO

import pytest

from deedbook_tool_mcp.client import pipes
from deedbook_tool_mcp.client.pipes import Pipes

SAID = b'{"jsonrpc":"2.0","method":"notifications/said"}\n'


class Program:
    """Two pipes as a kept program has them; it never ends by itself, and *closed* is called when it was closed."""

    def __init__(self, closed: Callable[[], None] = lambda: None) -> None:
        heard, given = os.pipe()
        self.number, said = os.pipe()
        self.stdin: BinaryIO = os.fdopen(given, "wb", buffering=0)
        self.stdout: BinaryIO = os.fdopen(self.number, "rb", buffering=0)
        self.said: BinaryIO = os.fdopen(said, "wb", buffering=0)
        self._heard: BinaryIO = os.fdopen(heard, "rb", buffering=0)
        self._closed = closed

    def close(self) -> None:
        for each in (self.stdin, self.stdout, self.said, self._heard):
            each.close()
        self._closed()


async def two_in_turn() -> None:
    """Begin a second connection in the moment in which the first one's program is closed, and hear what it says."""
    loop = asyncio.get_running_loop()
    second: list[Program] = []
    async with AsyncExitStack() as held:
        reads: list[Any] = []

        async def begin() -> None:
            read, _ = await held.enter_async_context(Pipes("two", second[0]).streams())  # type: ignore[arg-type]
            reads.append(read)

        def closed() -> None:
            second.append(Program())
            asyncio.run_coroutine_threadsafe(begin(), loop).result(20)

        first = Program(closed)
        async with Pipes("one", first).streams():  # type: ignore[arg-type] # a program as far as pipes go
            pass
        assert second[0].number == first.number, "no descriptor was used twice, so nothing is tried"
        second[0].said.write(SAID)
        async with asyncio.timeout(20):
            assert (await reads[0].receive()).message.method == "notifications/said"


def test_a_connection_hears_on_the_descriptor_that_an_ended_one_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "EXIT_SECONDS", 0.01)
    asyncio.run(two_in_turn())
