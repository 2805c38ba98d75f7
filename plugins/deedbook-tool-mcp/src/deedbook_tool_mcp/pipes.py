"""The stdio transport over a program that the kernel keeps: lines of JSON-RPC, within limits.

The SDK's own transport hands a server six variables of this process's environment and its standard error; here the
kernel starts it, with nothing but what YAML gives it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from deedbook.contract import Failed, RunningProgram

from .messages import Refused, read

MOST: Final = 16 * 1024 * 1024
"""Bytes of one message; more are no answer."""
GARBAGE: Final = 65536
"""Bytes that are no message and no answer, such as a banner, that a server may write to its standard output in all."""
ASKING: Final = 64
"""Requests of a server that wait to be answered: one that asks more and reads nothing is not listened to."""
PATIENCE: Final = 1.0
"""Seconds that a server has to end by itself when its standard input has ended."""


class Pipes:
    """Speaks with the program *kept*; *trouble* is why nobody does any more, where that is its fault."""

    def __init__(self, name: str, kept: RunningProgram) -> None:
        self.trouble: Failed | None = None
        self.ended = asyncio.Event()
        self._name, self._kept = name, kept
        self._asked = 0

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the streams of messages from the server and to it; afterwards it is dead, with all that it started."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MOST)
        taking, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._kept.stdout)
        giving, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._kept.stdin)
        writer = asyncio.StreamWriter(giving, protocol, None, loop)
        come, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, go = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [loop.create_task(self._take(reader, come)), loop.create_task(self._give(writer, go))]
        try:
            yield read, write
        finally:
            writer.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self.ended.wait()
            taking.close()  # before its descriptor is: the next connection may be given the same number
            await asyncio.sleep(0)
            await asyncio.to_thread(self._kept.close)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (come, read, write, go):
                stream.close()

    async def _take(self, reader: asyncio.StreamReader, come: Any) -> None:
        """Pass on what the server says until it says no more, or too much."""
        garbage = 0
        try:
            while line := await reader.readline():
                if not line.strip():
                    continue
                try:
                    message = read(line)
                except Refused as problem:
                    if not problem.answers or problem.id is None:
                        garbage += len(line)
                        if garbage > GARBAGE:
                            return self._blame("MCP_DISCONNECTED", f"writes what is no MCP message: {_shown(line)}")
                        continue
                    message = problem.reply()
                self._asked += isinstance(message, types.JSONRPCRequest)
                if self._asked > ASKING:
                    return self._blame("MCP_DISCONNECTED", f"asks more than {ASKING} things and hears no answer")
                await come.send(SessionMessage(message))
        except ValueError:
            self._blame("OUTPUT_TOO_LARGE", f"wrote a message of more than {MOST} bytes")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass
        finally:
            self.ended.set()
            come.close()

    async def _give(self, writer: asyncio.StreamWriter, go: Any) -> None:
        """Pass on what is said to the server."""
        with suppress(anyio.ClosedResourceError, OSError):
            async for each in go:
                answer = isinstance(each.message, types.JSONRPCResponse | types.JSONRPCError)
                writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
                self._asked -= answer
        go.close()

    def _blame(self, code: str, why: str) -> None:
        self.trouble = Failed(code, f"the MCP server {self._name} {why}", lost=True)


def _shown(line: bytes) -> str:
    return ascii(line[:60].decode("utf-8", "replace"))
