"""What a server answers, made into what an ability gives, or into why it gives nothing."""

from collections.abc import Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic import ValidationError

from deedbook.contract import Failed, Secret

from .messages import refusal_code

_TOLD: Final = 2000


def result_of(found: Mapping[str, Any], what: str, secrets: Mapping[str, Secret]) -> dict[str, Any]:
    """Return the result of a call: ``content``, and ``structuredContent`` where there is some; raises `Failed`.

    The values of *secrets* that the server was given are marked, wherever it repeats them.
    """
    kind = found.get("resultType", "complete")
    if kind == "input_required":
        wanted = sorted({str(each.get("method")) for each in _requests(found)})
        why = f"{what}: the server wants {', '.join(wanted) or 'more'} first, which is refused"
        raise Failed("MCP_REQUEST_REFUSED", why)
    if kind != "complete":
        raise Failed("MCP_RESULT_INVALID", f"{what}: a result of the kind {str(kind)[:80]!r}", lost=True)
    made = {key: found[key] for key in ("content", "structuredContent") if found.get(key) is not None}
    marked: dict[str, Any] = _marked(made, {name: secret.reveal() for name, secret in secrets.items()})
    if found.get("isError"):
        told = "; ".join(each["text"] for each in marked.get("content", ()) if isinstance(each.get("text"), str))
        raise Failed("MCP_TOOL_FAILED", f"{what} failed: {told[:_TOLD] or 'it does not say why'}")
    return {"content": [], **marked}


def refused(problem: Exception, what: str, *, lost: bool) -> Failed | None:
    """Return what the server's own refusal means; ``None``: it is none, the connection is broken."""
    if isinstance(problem, ValidationError):
        where = "; ".join(".".join(map(str, each["loc"])) for each in problem.errors(include_input=False)[:3])
        return Failed("MCP_RESULT_INVALID", f"{what}: the answer is not what MCP says: {where}", lost=lost)
    code = refusal_code(problem)
    if code is not None:
        return Failed(code, f"{what}: the answer is refused: {str(problem)[:_TOLD]}", lost=lost)
    if isinstance(problem, MCPError) and problem.code != CONNECTION_CLOSED:
        return Failed("MCP_REFUSED", f"{what}: {problem.message[:_TOLD]} ({problem.code})")
    return None


def is_about_the_call(problem: Exception) -> bool:
    """Say whether a refusal is about what was asked, or about one answer, and leaves the connection as it was."""
    told = isinstance(problem, MCPError) and problem.code in (INVALID_PARAMS, METHOD_NOT_FOUND)
    return told or refusal_code(problem) is not None


def _requests(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    wanted = found.get("inputRequests")
    return [each for each in wanted.values() if isinstance(each, dict)] if isinstance(wanted, dict) else []


def _marked(value: Any, secrets: Mapping[str, str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, str):
        for name, hidden in secrets.items():
            value = value.replace(hidden, f"[secret:{name}]") if hidden else value
        return value
    if isinstance(value, list):
        return [_marked(each, secrets) for each in value]
    if isinstance(value, dict):
        return {_marked(key, secrets): _marked(each, secrets) for key, each in value.items()}
    return value
