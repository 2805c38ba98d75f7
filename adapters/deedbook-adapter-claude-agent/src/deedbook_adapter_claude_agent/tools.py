"""The tools that a program gives to an agent of the SDK: those of the MCP servers in its own process."""

import asyncio
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions
from mcp import Client

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent

_OWN: Final = "the tools of the CLI, such as Bash and Read: declare those that you allow by their names"


def read_tools(options: Any) -> AgentTools:
    """Return the tools of the servers in this process; other servers are asked by the CLI only."""
    if not isinstance(options, ClaudeAgentOptions):
        raise not_an_agent(options, "ClaudeAgentOptions")
    given: Any = options.mcp_servers
    servers = given if isinstance(given, dict) else {"": given}
    local = {name: each["instance"] for name, each in servers.items() if name and each.get("type") == "sdk"}
    others = sorted(name for name in servers if name not in local)
    unlisted = [f"the tools of the MCP server {name or given!r}, which the CLI starts" for name in others]
    return AgentTools(asyncio.run(_list(local)), (_OWN, *unlisted))


async def _list(servers: dict[str, Any]) -> tuple[ToolDescription, ...]:
    found = []
    for name, server in servers.items():
        async with Client(server) as client:
            found += [_describe(name, tool) for tool in (await client.list_tools()).tools]
    return tuple(found)


def _describe(server: str, tool: Any) -> ToolDescription:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    return ToolDescription(f"mcp__{server}__{tool.name}", tool.description or "", tool.input_schema, hints)
