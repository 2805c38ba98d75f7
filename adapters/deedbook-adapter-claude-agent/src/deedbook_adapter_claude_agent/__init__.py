"""Govern the tools of Claude Agent SDK agents: `govern` returns an object with the SDK's `query` and its client."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework

LEAST: Final = "0.2.187"
BELOW: Final = "0.3"
"""The versions of claude-agent-sdk that this adapter is tested with."""

__all__ = ["govern"]


def govern(guard: Guard, *, pause: bool = False) -> Any:
    """Return an object whose ``query(prompt=…, options=…)`` and ``client(options)`` replace those of the SDK.

    With *pause*, a call that a person must decide is deferred, and the run ends with the SDK's ``deferred_tool_use``;
    otherwise the model is told. Raises `BindingError` if the installed SDK is missing or of another version than the
    tested ones.
    """
    check_framework("claude-agent-sdk", LEAST, BELOW, adapter="deedbook-adapter-claude-agent")
    from .governance import Governance  # noqa: PLC0415 - the framework is imported when it is used

    return Governance(guard, pause=pause)
