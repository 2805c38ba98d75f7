"""The tools that requests of LangChain offer to a model, in the form that Deedbook records."""

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from deedbook_guard import completions

_MOST: Final = 1000


class ToolOffers:
    """Describes tools; it keeps what it made of a tool, since LangChain builds its schema anew for each request."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[BaseTool, str, Any, dict[str, Any]]] = {}

    def describe(self, tool: BaseTool | dict[str, Any]) -> dict[str, Any]:
        """Return the description of a tool, made again if its own description or schema is another one."""
        if isinstance(tool, dict):
            return _offer(tool)
        found = self._made.get(id(tool))
        if found and found[0] is tool and found[1] == tool.description and found[2] is tool.args_schema:
            return found[3]
        if len(self._made) >= _MOST:  # a program that makes its tools for each request
            self._made.clear()
        made = _offer(convert_to_openai_tool(tool))
        self._made[id(tool)] = (tool, tool.description, tool.args_schema, made)
        return made


def _offer(about: Mapping[str, Any]) -> dict[str, Any]:
    function = about.get("function", about)
    name = function.get("name") or function.get("type") or ""
    return completions.tool_offer(name, function.get("description"), function.get("parameters"))
