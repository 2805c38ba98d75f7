"""Govern the tools of LangChain and LangGraph agents: `govern` makes the middleware to give to an agent."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "1.4"
BELOW: Final = "1.6"
"""The versions of langchain that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, *, pause: bool = False) -> Any:
    """Return the middleware for ``create_agent(…, middleware=[…])``; it has to be the last of the list.

    Its methods ``wrap_tool_call`` and ``awrap_tool_call`` also fit a ``ToolNode`` of your own. With *pause*, a call
    that a person must decide pauses the run with LangGraph's ``interrupt``, which needs a checkpointer; otherwise the
    model is told. Raises `BindingError` if the installed LangChain is missing or of another version than the tested
    ones.
    """
    _check()
    from .middleware import Governance  # noqa: PLC0415 - the framework is imported when it is used

    return Governance(guard, pause=pause)


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .tools import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("langchain", LEAST, BELOW, adapter="deedbook-adapter-langchain")
