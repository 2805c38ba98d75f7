"""Standard input and output as a connection: one JSON-RPC message per line, of limited length."""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from deedbook_tool_mcp.messages import RefusedMessage, build_refusal, read_message

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""The maximum size of a message, in bytes."""
GRACE: Final = 1.0
"""How many seconds writing the last answers may take."""
_BLOCK: Final = 65536

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def message_streams(source: Any, sink: Any) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Yield the messages from *source* and the stream of answers to *sink*; close both at the end.

    A line that is not a message is answered with an error and skipped.
    """
    read_in, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, write_out = anyio.create_memory_object_stream[SessionMessage](0)
    refusals = outgoing.clone()
    written = anyio.Event()
    with source, sink:
        async with anyio.create_task_group() as writing:
            writing.start_soon(_write, sink, write_out, written)
            async with anyio.create_task_group() as reading:
                reading.start_soon(_read, source, read_in, refusals)
                try:
                    yield incoming, outgoing
                finally:
                    reading.cancel_scope.cancel()
            with anyio.move_on_after(GRACE, shield=True):  # write the last answers if the client reads
                await outgoing.aclose()
                await written.wait()
            writing.cancel_scope.cancel()


async def _read(source: Any, read_in: MemoryObjectSendStream[SessionMessage | Exception], refusals: Outgoing) -> None:
    async with read_in, refusals:
        async for line in _read_lines(source):
            try:
                try:
                    await read_in.send(_parse_line(line))
                except RefusedMessage as problem:
                    await refusals.send(SessionMessage(problem.build_reply()))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def _parse_line(line: bytes | None) -> SessionMessage:
    if line is None:
        raise build_refusal(f"a message of more than {MAX_MESSAGE} bytes")
    return SessionMessage(read_message(line))


async def _read_lines(source: Any) -> AsyncIterator[bytes | None]:
    """Yield every line without its newline, and ``None`` for one that is too long; skip empty ones."""
    chunks = asyncio.StreamReader(limit=_BLOCK)
    buffer, skipping = bytearray(), False
    async with _feed_from(source, chunks):
        while chunk := await chunks.read(_BLOCK):
            *whole, rest = chunk.split(b"\n")
            for part in whole:
                buffer += part
                if skipping or len(buffer) > MAX_MESSAGE:
                    yield None
                elif buffer.strip():
                    yield bytes(buffer)
                buffer, skipping = bytearray(), False
            buffer += rest
            if len(buffer) > MAX_MESSAGE:
                buffer, skipping = bytearray(), True


@asynccontextmanager
async def _feed_from(source: Any, chunks: asyncio.StreamReader) -> AsyncIterator[None]:
    """Feed *chunks* from *source*: a pipe or a socket on the loop, anything else from a thread."""
    loop = asyncio.get_running_loop()
    mode = os.fstat(source.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        threading.Thread(target=_feed, args=(os.dup(source.fileno()), chunks, loop), daemon=True).start()
        yield
        return
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(chunks), source)
    try:
        yield
    finally:
        transport.close()


def _feed(fd: int, chunks: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file, a terminal or a device to its end."""
    with suppress(OSError, RuntimeError), os.fdopen(fd, "rb", buffering=0) as source:  # the loop may be closed
        while chunk := source.read(_BLOCK):
            loop.call_soon_threadsafe(chunks.feed_data, chunk)
        loop.call_soon_threadsafe(chunks.feed_eof)


async def _write(sink: Any, write_out: MemoryObjectReceiveStream[SessionMessage], written: anyio.Event) -> None:
    async with write_out:
        async for message in write_out:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(BrokenPipeError):  # the client is gone; standard input will end
                await anyio.to_thread.run_sync(_write_all, sink, line.encode() + b"\n", abandon_on_cancel=True)
    written.set()


def _write_all(sink: Any, line: bytes) -> None:
    left = memoryview(line)
    while left:
        left = left[sink.write(left) :]
