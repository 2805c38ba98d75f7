"""The outcome of a call as MCP: a result, an error result, or an error of the protocol."""

import json
from collections.abc import Sequence
from typing import Any, Final

from mcp import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent
from mcp_types.version import is_version_at_least
from pydantic import ValidationError

from deedbook import DomainError, Json, Object

from .tools import AbilityTool

ERROR: Final = "deedbook/error"
"""The key of the error in a result's ``_meta``: ``code``, ``message``, ``retryable``, ``approval``, and
``approvals`` if several requests wait.

Not in ``structuredContent``, which has to fit the tool's output schema even if the call failed."""
MAX_NAME: Final = 200
_MODEL_CORRECTS: Final = "2025-11-25"
"""From this revision on a model sees wrong arguments and corrects them; before, they are an error of the protocol."""


def build_result(value: Json, tool: AbilityTool) -> CallToolResult:
    """Return the result for *value*."""
    if tool.is_content and isinstance(value, dict):
        try:
            return CallToolResult.model_validate({**value, "isError": False}, by_name=False)
        except ValidationError:
            return CallToolResult(content=[_build_text(value)])
    structured = {"result": value} if tool.is_wrapped else value
    return CallToolResult(content=[_build_text(value)], structured_content=None if tool.is_content else structured)


def build_failure(
    error: DomainError, *, approval: str = "", approvals: Sequence[str] = (), more: str = ""
) -> CallToolResult:
    """Return the error result for *error*: text for a model, and the same for a program."""
    text = f"{error} [{error.code}]{more}"
    details = describe_error(error, approval)
    if len(approvals) > 1:
        details["approvals"] = list(approvals)
    return CallToolResult(content=[TextContent(text=text)], is_error=True, _meta={ERROR: details})


def describe_error(error: DomainError, approval: str = "") -> dict[str, Any]:
    """Return *error* for a program, with the id of the request that waits for a person."""
    details = {"code": error.code, "message": str(error), "retryable": error.retryable}
    return {**details, "approval": approval} if approval else details


def build_unknown_tool(name: str) -> MCPError:
    """Return the protocol's error for a tool that this client cannot use, whether or not it exists."""
    return MCPError(INVALID_PARAMS, f"Unknown tool: {name[:MAX_NAME]}", {"code": "TOOL_NOT_FOUND"})


def build_wrong_arguments(error: DomainError, version: str, faults: list[Object]) -> CallToolResult:
    """Return the error result for wrong arguments; raises `MCPError` for a *version* before 2025-11-25."""
    if is_version_at_least(version, _MODEL_CORRECTS):
        more = "".join(f"\n{each['path']}: {each['message']}" for each in faults[1:])
        return build_failure(error, more=more)
    raise MCPError(INVALID_PARAMS, str(error), {"code": error.code, "message": str(error), "errors": faults})


def _build_text(value: Json) -> TextContent:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return TextContent(text=text)
