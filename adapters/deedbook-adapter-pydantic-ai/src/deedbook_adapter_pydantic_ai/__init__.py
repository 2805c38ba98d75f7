"""Govern the tools of Pydantic AI agents: `govern` makes the capability to give to an agent."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "2.66"
BELOW: Final = "2.69"
"""The versions of pydantic-ai-slim that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, *, pause: bool = False) -> Any:
    """Return the capability for ``Agent(…, capabilities=[…])``.

    With *pause*, a call that a person must decide pauses the run (``ApprovalRequired``), for agents whose output type
    includes ``DeferredToolRequests``; otherwise the model is told. Raises `BindingError` if the installed Pydantic AI
    is missing or of another version than the tested ones.
    """
    _check()
    from .capability import Governance  # noqa: PLC0415 - the framework is imported when it is used

    return Governance(guard, pause=pause)


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .tools import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("pydantic-ai-slim", LEAST, BELOW, adapter="deedbook-adapter-pydantic-ai")
