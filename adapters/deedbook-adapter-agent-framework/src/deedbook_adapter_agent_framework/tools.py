"""The tools of an agent of Microsoft Agent Framework."""

from typing import Any

from agent_framework import Agent, FunctionTool

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


def read_tools(agent: Any) -> AgentTools:
    """Return the function tools that the agent was built with; MCP servers list theirs while it runs."""
    if not isinstance(agent, Agent):
        raise not_an_agent(agent, "agent_framework.Agent")
    given = list(agent.default_options.get("tools") or ())
    tools = (
        ToolDescription(tool.name, tool.description, tool.parameters()) for tool in given if isinstance(tool, FunctionTool)
    )
    unlisted = [f"{type(tool).__name__} is no function tool" for tool in given if not isinstance(tool, FunctionTool)]
    unlisted += [f"the MCP server {server.name} lists its tools only while the agent runs" for server in agent.mcp_tools]
    return AgentTools(tuple(tools), tuple(unlisted))
