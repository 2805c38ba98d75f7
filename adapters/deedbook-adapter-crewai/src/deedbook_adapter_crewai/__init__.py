"""Govern the tools and models of CrewAI: `govern` takes a crew or an agent."""

from typing import Any, Final, TypeVar

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "1.15.30"
BELOW: Final = "1.16"
"""The versions of crewai that this adapter is tested with."""

T = TypeVar("T")

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, target: T) -> T:
    """Govern a crew with all its agents, or an agent of its own, and return it.

    Raises `BindingError` for what cannot be governed or is governed by another guard, and if the installed framework is
    missing or of another version than the tested ones.
    """
    _check()
    from .governance import Governance  # noqa: PLC0415 - the framework is imported when it is used

    Governance(guard).govern(target)
    return target


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of a crew or an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .listing import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("crewai", LEAST, BELOW, adapter="deedbook-adapter-crewai")
