"""The tools of a Pydantic AI agent, as the agent offers them to a model."""

import asyncio
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext, Tool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from pydantic_ai.usage import RunUsage

from deedbook.format.errors import describe
from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


def read_tools(agent: Any) -> AgentTools:
    """Return the tools that are functions; other toolsets, such as MCP servers, list theirs while the agent runs."""
    if not isinstance(agent, AbstractAgent):
        raise not_an_agent(agent, "pydantic_ai.Agent")
    tools, unlisted = list[ToolDescription](), list[str]()
    for toolset in agent.toolsets:
        leaves = list[AbstractToolset[Any]]()
        toolset.apply(leaves.append)
        if not all(isinstance(leaf, FunctionToolset) for leaf in leaves):
            unlisted.append(f"{toolset.label} lists its tools only while the agent runs")
            continue
        try:
            tools += map(_describe, _definitions(toolset))
        except Exception as problem:  # noqa: BLE001 - a function of the program may decide which tools there are
            unlisted.append(f"{toolset.label} cannot list its tools: {describe(problem)}")
    return AgentTools(tuple(tools), tuple(unlisted))


def _definitions(toolset: AbstractToolset[Any]) -> list[ToolDefinition]:
    """Return the tools of a toolset; one that wraps another may rename them or leave some out."""
    if isinstance(toolset, FunctionToolset):
        return [_definition(tool) for tool in toolset.tools.values()]
    context = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())
    return [each.tool_def for each in asyncio.run(toolset.get_tools(context)).values()]


def _definition(tool: Tool[Any]) -> ToolDefinition:
    """Return the definition with the schema of the arguments as `Governance` gets them.

    A function whose only parameter is an object has the members of the object as its schema for the model.
    """
    schema, only = dict(tool.tool_def.parameters_json_schema), tool.function_schema.single_arg_name
    if only is None:
        return tool.tool_def
    shared = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    wrapped = {"type": "object", "properties": {only: schema}, "required": [only], **shared}
    return replace(tool.tool_def, parameters_json_schema=wrapped)


def _describe(tool: ToolDefinition) -> ToolDescription:
    hints = (tool.metadata or {}).get("annotations") or {}
    return ToolDescription(tool.name, tool.description or "", tool.parameters_json_schema, dict(hints))
