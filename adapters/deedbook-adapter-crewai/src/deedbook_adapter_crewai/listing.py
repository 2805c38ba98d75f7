"""The tools of a crew or an agent of CrewAI."""

from typing import Any

from crewai import Agent, Crew
from crewai.utilities.agent_utils import convert_tools_to_openai_schema

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


def read_tools(agent: Any) -> AgentTools:
    """Return the tools of agents and tasks; the framework makes those for delegation, MCP and memory in a run."""
    if not isinstance(agent, Crew | Agent):
        raise not_an_agent(agent, "CrewAI crew or agent")
    owners = [*agent.agents, *agent.tasks] if isinstance(agent, Crew) else [agent]
    tools, unlisted = dict[str, ToolDescription](), list[str]()
    for owner in owners:
        for about in (each["function"] for each in convert_tools_to_openai_schema(owner.tools or ())[0]):
            tools[about["name"]] = ToolDescription(about["name"], about["description"], about["parameters"])
        for name in ("mcps", "apps"):
            if getattr(owner, name, None):
                unlisted.append(f"the {name} of agent {owner.role} list their tools only while it runs")
    return AgentTools(tuple(tools.values()), tuple(unlisted))
