"""Govern the tools of OpenAI Agents SDK agents: `govern` takes an agent and returns the hooks to run it with."""

from typing import Any, Final

from deedbook_guard import Guard, check_framework
from deedbook_guard.agent_tools import AgentTools

LEAST: Final = "0.24"
BELOW: Final = "0.25"
"""The versions of openai-agents that this adapter is tested with."""

__all__ = ["govern", "list_tools"]


def govern(guard: Guard, agent: Any, *, pause: bool = False) -> Any:
    """Govern *agent* and every agent that it can hand over to; return the hooks for ``Runner.run(agent, …, hooks=…)``.

    The agents get governed copies of their tools; calling it again governs only new ones. With *pause*, a call that a
    person must decide pauses the run with the SDK's ``needs_approval``; otherwise the model is told.

    Raises `BindingError` for what cannot be governed, and if the installed SDK is missing or of another
    version than the tested ones.
    """
    _check()
    from .governance import Governance  # noqa: PLC0415 - the framework is imported when it is used

    governance = Governance(guard, pause=pause)
    governance.govern(agent)
    return governance


def list_tools(agent: Any) -> AgentTools:
    """Return the tools of an agent for ``deedbook adopt``; raises `BindingError` as `govern`."""
    _check()
    from .tools import read_tools  # noqa: PLC0415 - as above

    return read_tools(agent)


def _check() -> None:
    check_framework("openai-agents", LEAST, BELOW, adapter="deedbook-adapter-openai-agents")
