"""Govern the tools and models of Microsoft Agent Framework agents: `govern` makes the middleware for an agent."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "1.23"
BELOW: Final = "1.24"
"""The versions of agent-framework-core that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, *, pause: bool = False) -> list[Any]:
    """Return the middleware for ``Agent(…, middleware=[…])``; it has to be the last of the list.

    With *pause*, a call that a person must decide pauses the run with the framework's approval request; otherwise the
    model is told. Raises `BindingError` if the installed framework is missing or of another version than the tested
    ones.
    """
    _check()
    from .middleware import ModelGovernance, ToolGovernance  # noqa: PLC0415 - the framework is imported when used

    return [ToolGovernance(guard, pause=pause), ModelGovernance(guard)]


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .tools import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("agent-framework-core", LEAST, BELOW, adapter="deedbook-adapter-agent-framework")
