"""The tools of an agent of Microsoft Agent Framework."""

from typing import Any

from agent_framework import Agent, FunctionTool

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


def read_tools(agent: Any) -> AgentTools:
    """Return the function tools that the agent was built with; MCP servers list theirs while it runs."""
    if not isinstance(agent, Agent):
        raise not_an_agent(agent, "agent_framework.Agent")
    tools, unlisted = list[ToolDescription](), list[str]()
    for tool in agent.default_options.get("tools") or ():
        if isinstance(tool, FunctionTool):
            tools.append(ToolDescription(tool.name, tool.description, tool.parameters()))
        else:
            unlisted.append(f"{type(tool).__name__} is no function tool")
    for server in agent.mcp_tools:
        unlisted.append(f"the MCP server {server.name} lists its tools only while the agent runs")
    return AgentTools(tuple(tools), tuple(unlisted))
