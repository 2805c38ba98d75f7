"""Govern the tools and models of CrewAI: `govern` takes a crew or an agent."""

from typing import Final, TypeVar

from deedbook_guard import Guard, check_framework

LEAST: Final = "1.15"
BELOW: Final = "1.16"
"""The versions of crewai that this adapter is tested with."""

T = TypeVar("T")

__all__ = ["govern"]


def govern(guard: Guard, target: T) -> T:
    """Govern a crew with all its agents, or an agent of its own, and return it.

    Raises `BindingError` for what cannot be governed or is governed by another guard, and if the installed framework is
    missing or of another version than the tested ones.
    """
    check_framework("crewai", LEAST, BELOW, adapter="deedbook-adapter-crewai")
    from .governance import Governance  # noqa: PLC0415 - the framework is imported when it is used

    Governance(guard).govern(target)
    return target
