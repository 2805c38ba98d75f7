"""Convert the answer of a server to the result of an ability, or to its failure."""

from collections.abc import Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import ValidationError

from deedbook.contract import Failed, Secret

from .messages import find_refusal_code

_MAX_TEXT: Final = 2000


def build_result(found: Mapping[str, Any], what: str, secrets: Mapping[str, Secret]) -> dict[str, Any]:
    """Return the result of a call: ``content``, and ``structuredContent`` if there is any; raises `Failed`.

    Values of *secrets* in the answer are replaced by their names.
    """
    kind = found.get("resultType", "complete")
    if kind == "input_required":
        wanted = sorted({str(each.get("method")) for each in _list_requests(found)})
        why = f"{what}: the server wants {', '.join(wanted) or 'more'} first, which is refused"
        raise Failed("MCP_REQUEST_REFUSED", why)
    if kind != "complete":
        raise Failed("MCP_RESULT_INVALID", f"{what}: a result of the kind {str(kind)[:80]!r}", lost=True)
    result = {key: found[key] for key in ("content", "structuredContent") if found.get(key) is not None}
    marked: dict[str, Any] = _mark_secrets(result, {name: secret.reveal() for name, secret in secrets.items()})
    if found.get("isError"):
        texts = "; ".join(each["text"] for each in marked.get("content", ()) if isinstance(each.get("text"), str))
        raise Failed("MCP_TOOL_FAILED", f"{what} failed: {texts[:_MAX_TEXT] or 'it does not say why'}")
    return {"content": [], **marked}


def find_refusal(problem: Exception, what: str, *, lost: bool) -> Failed | None:
    """Return the failure for a refusal by the server; ``None`` if the connection is broken."""
    if isinstance(problem, ValidationError):
        where = "; ".join(".".join(map(str, each["loc"])) for each in problem.errors(include_input=False)[:3])
        return Failed("MCP_RESULT_INVALID", f"{what}: the answer is not what MCP says: {where}", lost=lost)
    code = find_refusal_code(problem)
    if code is not None:
        return Failed(code, f"{what}: the answer is refused: {str(problem)[:_MAX_TEXT]}", lost=lost)
    if isinstance(problem, MCPError) and problem.code != CONNECTION_CLOSED:
        return Failed("MCP_REFUSED", f"{what}: {problem.message[:_MAX_TEXT]} ({problem.code})")
    return None


def is_about_call(problem: Exception) -> bool:
    """Return whether a refusal concerns one request or answer, and the connection still works."""
    is_call_error = isinstance(problem, MCPError) and problem.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
    return is_call_error or find_refusal_code(problem) is not None


def _list_requests(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    wanted = found.get("inputRequests")
    return [each for each in wanted.values() if isinstance(each, dict)] if isinstance(wanted, dict) else []


def _mark_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, str):
        for name, hidden in secrets.items():
            value = value.replace(hidden, f"[secret:{name}]") if hidden else value
        return value
    if isinstance(value, list):
        return [_mark_secrets(each, secrets) for each in value]
    if isinstance(value, dict):
        return {_mark_secrets(key, secrets): _mark_secrets(each, secrets) for key, each in value.items()}
    return value
