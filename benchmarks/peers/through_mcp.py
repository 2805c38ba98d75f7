"""MCP's Python SDK, client and server in memory: arguments and results are validated; no hooks, no record."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from benchmarks.peers.work import BATCH, TEXT, Batch, Peer


class Echoed(BaseModel):
    """What the tool gives."""

    text: str


async def echo(text: str) -> Echoed:
    """Echo a text back."""
    return Echoed(text=text)


@asynccontextmanager
async def _opened(_folder: Path) -> AsyncIterator[Batch]:
    server = MCPServer("bench")
    server.tool()(echo)
    async with Client(server) as client:

        async def batch() -> None:
            for _ in range(BATCH):
                result = await client.call_tool("echo", {"text": TEXT})
                assert result.structured_content == {"text": TEXT}

        yield batch


PEERS = (Peer("mcp, in memory", 6, 12.6, _opened, awaited=True),)
