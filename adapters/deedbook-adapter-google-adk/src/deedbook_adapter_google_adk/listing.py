"""The tools of an app or an agent of Google ADK."""

from collections.abc import Iterator
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.apps import App
from google.adk.tools import AgentTool, BaseTool, FunctionTool

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent

from .completions import schema_of


def read_tools(agent: Any) -> AgentTools:
    """Return the tools of an agent, its sub-agents and agents that are tools; toolsets list theirs while it runs."""
    root = agent.root_agent if isinstance(agent, App) else agent
    if not isinstance(root, BaseAgent):
        raise not_an_agent(agent, "Google ADK app or agent")
    tools, unlisted = dict[str, ToolDescription](), list[str]()
    for each in _agents(root):
        for given in getattr(each, "tools", ()):
            tool = FunctionTool(given) if callable(given) and not isinstance(given, BaseTool) else given
            declared = tool._get_declaration() if isinstance(tool, BaseTool) else None  # noqa: SLF001 - none is public
            if declared is None:
                unlisted.append(f"{type(tool).__name__} of agent {each.name} lists its tools only while the agent runs")
            else:
                tools[tool.name] = ToolDescription(tool.name, declared.description or "", schema_of(declared))
    return AgentTools(tuple(tools.values()), tuple(unlisted))


def _agents(root: BaseAgent) -> Iterator[BaseAgent]:
    yield root
    for each in root.sub_agents:
        yield from _agents(each)
    for tool in getattr(root, "tools", ()):
        if isinstance(tool, AgentTool):
            yield from _agents(tool.agent)
