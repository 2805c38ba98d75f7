"""The tools of a LangChain agent or a LangGraph graph, as its nodes have them."""

from collections.abc import Iterator
from typing import Any

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from deedbook_guard.agent_tools import AgentTools, ToolDescription, not_an_agent


def read_tools(agent: Any) -> AgentTools:
    """Return the tools of every ``ToolNode`` in the graph and in its subgraphs; *agent* may also be a ``ToolNode``."""
    if not isinstance(agent, CompiledStateGraph | ToolNode):
        raise not_an_agent(agent, "compiled graph, which create_agent returns")
    return AgentTools(tuple(_describe(tool) for tool in _tools_of(agent)))


def _tools_of(part: Any) -> Iterator[BaseTool]:
    if isinstance(part, ToolNode):
        yield from part.tools_by_name.values()
    elif isinstance(part, CompiledStateGraph):
        for node in part.nodes.values():
            yield from _tools_of(node.bound)


def _describe(tool: BaseTool) -> ToolDescription:
    function = convert_to_openai_tool(tool)["function"]
    hints = {name: hint for name, hint in (tool.metadata or {}).items() if name.endswith("Hint")}
    return ToolDescription(tool.name, function.get("description") or "", function.get("parameters"), hints)
