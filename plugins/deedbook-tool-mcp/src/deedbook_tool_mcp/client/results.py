"""Convert the answer of a server to the result of an ability, or to its failure."""

from collections.abc import Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import ValidationError

from deedbook.contract import Failed, Secret
from deedbook_tool_mcp.messages import find_refusal_code

_MAX_TEXT: Final = 2000
_ENVELOPE: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""Members of a result that concern its transport."""


def build_result(found: Mapping[str, Any], what: str, secrets: Mapping[str, Secret]) -> dict[str, Any]:
    """Return the result of a call: ``content``, and ``structuredContent`` if there is any; raises `Failed`.

    Values of *secrets* in the answer are replaced by their names.
    """
    _check_kind(found, what)
    result = {key: found[key] for key in ("content", "structuredContent") if found.get(key) is not None}
    marked: dict[str, Any] = mark_secrets(result, secrets)
    if found.get("isError"):
        texts = "; ".join(each["text"] for each in marked.get("content", ()) if isinstance(each.get("text"), str))
        raise Failed("MCP_TOOL_FAILED", f"{what} failed: {texts[:_MAX_TEXT] or 'it does not say why'}")
    return {"content": [], **marked}


def build_answer(found: Mapping[str, Any], what: str, secrets: Mapping[str, Secret]) -> dict[str, Any]:
    """Return the result of another request than a call of a tool, without its metadata; raises `Failed`."""
    _check_kind(found, what)
    answer = {key: value for key, value in found.items() if key not in _ENVELOPE and value is not None}
    marked: dict[str, Any] = mark_secrets(answer, secrets)
    return marked


def mark_secrets(value: Any, secrets: Mapping[str, Secret]) -> Any:
    """Return JSON *value* with the values of *secrets* replaced by their names."""
    return _mark_values(value, {name: secret.reveal() for name, secret in secrets.items()})


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


def _check_kind(found: Mapping[str, Any], what: str) -> None:
    """Raise `Failed` for a result that is not the final one."""
    kind = found.get("resultType", "complete")
    if kind == "input_required":
        wanted = sorted({str(each.get("method")) for each in _list_requests(found)})
        why = f"{what}: the server wants {', '.join(wanted) or 'more'} first, which is refused"
        raise Failed("MCP_REQUEST_REFUSED", why)
    if kind != "complete":
        raise Failed("MCP_RESULT_INVALID", f"{what}: a result of the kind {str(kind)[:80]!r}", lost=True)


def _list_requests(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    wanted = found.get("inputRequests")
    return [each for each in wanted.values() if isinstance(each, dict)] if isinstance(wanted, dict) else []


def _mark_values(value: Any, secrets: Mapping[str, str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, str):
        for name, hidden in secrets.items():
            value = value.replace(hidden, f"[secret:{name}]") if hidden else value
        return value
    if isinstance(value, list):
        return [_mark_values(each, secrets) for each in value]
    if isinstance(value, dict):
        return {_mark_values(key, secrets): _mark_values(each, secrets) for key, each in value.items()}
    return value
