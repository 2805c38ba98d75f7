"""The tools of an agent of the OpenAI Agents SDK and of the agents that it can reach."""

from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent

from .governance import reachable_agents


def read_tools(agent: Any) -> AgentTools:
    """Return the function tools; the SDK sends no call of a hosted tool to the program."""
    if not isinstance(agent, Agent):
        raise not_an_agent(agent, "agents.Agent")
    tools, unlisted = list[ToolDescription](), list[str]()
    for each in reachable_agents(agent):
        tools += (_describe(tool) for tool in each.tools if isinstance(tool, FunctionTool))
        unlisted += _describe_unlisted(each)
    return AgentTools(tuple(tools), tuple(unlisted))


def _describe_unlisted(agent: Agent[Any]) -> Iterator[str]:
    for tool in agent.tools:
        if not isinstance(tool, FunctionTool):
            yield f"agent {agent.name!r}: {type(tool).__name__} is no function tool"
    for server in agent.mcp_servers:
        yield f"agent {agent.name!r}: the MCP server {server.name} lists its tools only while the agent runs"


def _describe(tool: FunctionTool) -> ToolDescription:
    return ToolDescription(tool.name, tool.description, _without_defaults_required(tool.params_json_schema))


def _without_defaults_required(schema: Any) -> Any:
    """Return the schema without the names that the SDK's strict form requires although the function has a default."""
    properties = schema.get("properties", {})
    needed = [name for name in schema.get("required", ()) if not _is_optional(properties.get(name, {}))]
    return {**schema, "required": needed} if "required" in schema else schema


def _is_optional(schema: Any) -> bool:
    return "default" in schema or {"type": "null"} in schema.get("anyOf", ())
