"""Govern the tools of a Python program: `guard` finds the workspace, and its object judges and records each call.

Each name is imported when it is asked for: the command of this distribution shows its help without them.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .conversation import CallDenied, Conversation, Permit, ResultWithheld
    from .frameworks import check_framework
    from .guards import Guard, guard
    from .subclassing import govern_object, owner_of

_MODULES: Final = {
    "CallDenied": "conversation",
    "Conversation": "conversation",
    "Guard": "guards",
    "Permit": "conversation",
    "ResultWithheld": "conversation",
    "check_framework": "frameworks",
    "govern_object": "subclassing",
    "guard": "guards",
    "owner_of": "subclassing",
}
__all__ = [
    "CallDenied",
    "Conversation",
    "Guard",
    "Permit",
    "ResultWithheld",
    "check_framework",
    "govern_object",
    "guard",
    "owner_of",
]


def __getattr__(name: str) -> object:
    """Import what is asked for, once."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    found: object = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found
    return found
