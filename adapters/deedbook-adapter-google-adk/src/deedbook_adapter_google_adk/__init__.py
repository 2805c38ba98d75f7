"""Govern the tools and models of Google ADK agents: `govern` makes the plugin for an app."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "2.13"
BELOW: Final = "2.14"
"""The versions of google-adk that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, *, pause: bool = False) -> Any:
    """Return the plugin for ``App(…, plugins=[…])``; give it as the first one.

    With *pause*, a call that a person must decide pauses the run with the framework's tool confirmation; otherwise the
    model is told. Raises `BindingError` if the installed framework is missing or of another version than the tested
    ones.
    """
    _check()
    from .plugin import Governance  # noqa: PLC0415 - the framework is imported when it is used

    return Governance(guard, pause=pause)


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of an app or an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .listing import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("google-adk", LEAST, BELOW, adapter="deedbook-adapter-google-adk")
