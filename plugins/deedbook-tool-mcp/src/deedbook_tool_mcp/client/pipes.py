"""The stdio transport over a program that the kernel keeps: lines of JSON-RPC, within limits.

The SDK's own transport passes six environment variables and the standard error of this process to a server. Here the
kernel starts the server, and its environment is the one in YAML.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from deedbook.contract import Failed, RunningProgram
from deedbook_tool_mcp.messages import RefusedMessage, read_message

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""The maximum size of one message, in bytes."""
MAX_GARBAGE: Final = 65536
"""How many bytes that are not a message, such as a banner, a server may write to its standard output."""
MAX_REQUESTS: Final = 64
"""How many requests of a server may wait for an answer; with more, the connection is closed."""
EXIT_SECONDS: Final = 1.0
"""How long a server may take to end after the end of its standard input, in seconds."""


class Pipes:
    """Exchanges messages with *process*; *trouble* is the error if the server caused the end."""

    def __init__(self, name: str, process: RunningProgram) -> None:
        self.trouble: Failed | None = None
        self.ended = asyncio.Event()
        self._name, self._process = name, process
        self._open_requests = 0

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the streams of messages from and to the server; at the end, kill it and its child processes."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_MESSAGE)
        taking, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout)
        giving, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._process.stdin)
        writer = asyncio.StreamWriter(giving, protocol, None, loop)
        come, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, go = anyio.create_memory_object_stream[SessionMessage](0)
        tasks = [loop.create_task(self._read(reader, come)), loop.create_task(self._write(writer, go))]
        try:
            yield read, write
        finally:
            writer.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await self.ended.wait()
            if giving.get_write_buffer_size():
                giving.abort()  # a server that reads nothing would keep it open
            taking.close()  # before its descriptor is: the next connection may be given the same number
            await asyncio.sleep(0)
            await asyncio.to_thread(self._process.close)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (come, read, write, go):
                stream.close()

    async def _read(self, reader: asyncio.StreamReader, come: Any) -> None:
        """Pass on the messages of the server until its output ends or exceeds a limit."""
        garbage = 0
        try:
            while line := await reader.readline():
                if not line.strip():
                    continue
                try:
                    message = read_message(line)
                except RefusedMessage as problem:
                    if not problem.is_answer or problem.id is None:
                        garbage += len(line)
                        if garbage > MAX_GARBAGE:
                            return self._blame("MCP_DISCONNECTED", f"writes what is no MCP message: {_shorten(line)}")
                        continue
                    message = problem.build_reply()
                self._open_requests += isinstance(message, types.JSONRPCRequest)
                if self._open_requests > MAX_REQUESTS:
                    return self._blame("MCP_DISCONNECTED", f"asks more than {MAX_REQUESTS} things and hears no answer")
                await come.send(SessionMessage(message))
        except ValueError:
            self._blame("OUTPUT_TOO_LARGE", f"wrote a message of more than {MAX_MESSAGE} bytes")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            pass
        finally:
            self.ended.set()
            come.close()

    async def _write(self, writer: asyncio.StreamWriter, go: Any) -> None:
        """Write messages to the server."""
        with suppress(anyio.ClosedResourceError, OSError):
            async for each in go:
                answer = isinstance(each.message, types.JSONRPCResponse | types.JSONRPCError)
                writer.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
                self._open_requests -= answer
        go.close()

    def _blame(self, code: str, why: str) -> None:
        self.trouble = Failed(code, f"the MCP server {self._name} {why}", lost=True)


def _shorten(line: bytes) -> str:
    return ascii(line[:60].decode("utf-8", "replace"))
