"""Govern any host of the agent-hooks contract: `govern` makes its interceptor."""

from typing import TYPE_CHECKING, Final

from deedbook_guard import Guard, check_framework

if TYPE_CHECKING:
    from .interceptor import GuardInterceptor

LEAST: Final = "0.1.0"
BELOW: Final = "0.1.1"
"""The versions of agent-hooks-sdk that this adapter is tested with."""

__all__ = ["check_sdk", "govern"]


def govern(guard: Guard, *, approvals: bool = False) -> "GuardInterceptor":
    """Return the interceptor for a host; register it last, at every point.

    With *approvals*, a call that a person must decide is a denial that the host may lift; the host must then have the
    same object as its approval resolver. Raises `BindingError` if the installed SDK is missing or of another version
    than the tested ones.
    """
    check_sdk()
    from .interceptor import GuardInterceptor  # noqa: PLC0415 - the SDK is imported when used

    return GuardInterceptor(guard, approvals=approvals)


def check_sdk() -> str:
    """Return the installed version of agent-hooks-sdk; raises `BindingError` if it is not a tested one."""
    return check_framework("agent-hooks-sdk", LEAST, BELOW, adapter="deedbook-adapter-agent-hooks")
