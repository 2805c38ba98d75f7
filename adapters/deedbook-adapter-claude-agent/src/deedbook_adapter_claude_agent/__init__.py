"""Govern the tools of Claude Agent SDK agents: `govern` returns an object with the SDK's `query` and its client."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

_NAME: Final = "deedbook-adapter-claude-agent"
LEAST: Final = "0.2.187"
BELOW: Final = "0.3"
"""The versions of claude-agent-sdk that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, *, pause: bool = False) -> Any:
    """Return an object whose ``query(prompt=…, options=…)`` and ``client(options)`` replace those of the SDK.

    With *pause*, a call that a person must decide is deferred, and the run ends with the SDK's ``deferred_tool_use``;
    otherwise the model is told. Raises `BindingError` if the installed SDK is missing or of another version than the
    tested ones.
    """
    _check()
    from .governance import Governance  # noqa: PLC0415 - the framework is imported when it is used

    return Governance(guard, pause=pause)


def list_tools(options: Any) -> AgentTools:
    """Return the tools of ``ClaudeAgentOptions`` for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    check_framework("mcp", "2", "3", adapter=_NAME)
    from .tools import read_tools  # noqa: PLC0415 - as above

    return read_tools(options)


def _check() -> None:
    check_framework("claude-agent-sdk", LEAST, BELOW, adapter=_NAME)
