"""Two programs for `benchmarks.mcp`: a server with two equal tools, and a proxy that passes calls on and does no more.

``python mcpside.py server`` and ``python mcpside.py proxy COMMAND…``; both by the official SDK, over stdio.
"""

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    types.Tool(name=name, description="Echo a text back.", input_schema=TEXT, output_schema=TEXT)
    for name in ("echo", "keep")
]


def server() -> Server[Any]:
    """Return a server whose tools give back what they are given."""

    async def listing(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        return types.CallToolResult(content=[types.TextContent(text=given["text"])], structured_content=given)

    return Server("echo", version="1", on_list_tools=listing, on_call_tool=call)


def proxy(client: Client) -> Server[Any]:
    """Return a server that passes on what it is asked, and what comes back: no gate, no record, no check of its own."""

    async def listing(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return await client.list_tools()

    async def call(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        # not `client.call_tool`, which holds every result against the tool's output schema
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=params.name, arguments=params.arguments)
        )
        return await client.session.send_request(request, types.CallToolResult)

    return Server("proxy", version="1", on_list_tools=listing, on_call_tool=call)


async def main(role: str, command: list[str]) -> None:
    """Serve at standard input and output."""
    if role == "server":
        await _serve(server())
        return
    async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
        await _serve(proxy(client))


async def _serve(made: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
