"""Govern the tools of a Python program: `guard` finds the workspace, and its object judges and records each call.

Each name is imported when it is asked for: the command of this distribution shows its help without them.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .conversation import CallDenied, Conversation, Permit, ResultWithheld
    from .frameworks import check_framework
    from .guards import Guard, guard

__all__ = ["CallDenied", "Conversation", "Guard", "Permit", "ResultWithheld", "check_framework", "guard"]


def __getattr__(name: str) -> object:
    """Import what is asked for, once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    module = {"Guard": "guards", "guard": "guards", "check_framework": "frameworks"}.get(name, "conversation")
    found: object = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = found
    return found
