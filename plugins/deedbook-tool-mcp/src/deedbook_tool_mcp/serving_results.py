"""What became of a call, as MCP says it: a result, a result that is an error, or an error of the protocol."""

import json
from typing import Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent
from mcp_types.version import is_version_at_least
from pydantic import ValidationError

from deedbook import DomainError, Json, Object

from .serving_tools import Offered

ERROR: Final = "deedbook/error"
"""Where in a result's ``_meta`` stands what went wrong: ``code``, ``message``, ``retryable``, ``approval``.

Not in ``structuredContent``: that has to fit the tool's output schema, also where the call failed.
"""
LONGEST: Final = 200
_CORRECTS: Final = "2025-11-25"
"""From this revision on wrong arguments are for the model to see and mend; before, they are the protocol's error."""


def given(value: Json, offered: Offered) -> CallToolResult:
    """Return the result of a call that gave *value*."""
    if offered.content and isinstance(value, dict):
        try:
            return CallToolResult.model_validate({**value, "isError": False}, by_name=False)
        except ValidationError:
            return CallToolResult(content=[_text(value)])
    structured = {"result": value} if offered.wraps else value
    return CallToolResult(content=[_text(value)], structured_content=None if offered.content else structured)


def failed(error: DomainError, *, approval: str = "", more: str = "") -> CallToolResult:
    """Return the result of a call that gave none: what a model reads, and the same for a program."""
    said = {"code": error.code, "message": str(error), "retryable": error.retryable}
    said |= {"approval": approval} if approval else {}
    text = f"{error} [{error.code}]{more}"
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={ERROR: said})


def unknown(name: str) -> MCPError:
    """Return the protocol's error for a tool that is not there for this client, whether or not it is for others."""
    return MCPError(INVALID_PARAMS, f"Unknown tool: {name[:LONGEST]}", {"code": "TOOL_NOT_FOUND"})


def wrong_arguments(error: DomainError, version: str, faults: list[Object]) -> CallToolResult:
    """Return what a client of that *version* is told about arguments that do not fit; for older ones, raise it."""
    if is_version_at_least(version, _CORRECTS):
        more = "".join(f"\n{each['path']}: {each['message']}" for each in faults[1:])
        return failed(error, more=more)
    raise MCPError(INVALID_PARAMS, str(error), {"code": error.code, "message": str(error), "errors": faults})


def _text(value: Json) -> TextContent:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return TextContent(text=text)
