"""Deedbook: every capability of an agent passes one door and leaves a line in a tamper-evident ledger.

Plugins import their contract from here; programs open a workspace with `open_kernel`. Each name is imported when it is
asked for: a plugin needs no kernel, and the command has to begin before anything else does.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from deedbook_guard import guard

    from .call.handlers import Outcome, Ticket
    from .contract import (
        ALLOW,
        AbilityDeclaration,
        Approval,
        Branch,
        Call,
        Ctx,
        Decision,
        Event,
        EventType,
        Failed,
        FolderEntry,
        GateSpec,
        HandlerSpec,
        Host,
        Json,
        Limits,
        Object,
        Principal,
        ProgramResult,
        Run,
        RunState,
        Secret,
        Skill,
        allow,
        ask,
        deny,
        hookimpl,
        transform,
    )
    from .format.canonical import parse, parse_payload
    from .format.errors import DeedbookError, DomainError, Err, IntakeError, NotJsonError, Ok, Result, SessionRefused
    from .format.folds import Fold
    from .kernel import Kernel, open_kernel
    from .sessions.session import Session

__all__ = [
    "ALLOW",
    "AbilityDeclaration",
    "Approval",
    "Branch",
    "Call",
    "Ctx",
    "Decision",
    "DeedbookError",
    "DomainError",
    "Err",
    "Event",
    "EventType",
    "Failed",
    "Fold",
    "FolderEntry",
    "GateSpec",
    "HandlerSpec",
    "Host",
    "IntakeError",
    "Json",
    "Kernel",
    "Limits",
    "NotJsonError",
    "Object",
    "Ok",
    "Outcome",
    "Principal",
    "ProgramResult",
    "Result",
    "Run",
    "RunState",
    "Secret",
    "Session",
    "SessionRefused",
    "Skill",
    "Ticket",
    "allow",
    "ask",
    "deny",
    "guard",
    "hookimpl",
    "open_kernel",
    "parse",
    "parse_payload",
    "transform",
]


def __getattr__(name: str) -> object:
    """Import what is asked for, once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "guard":
        return _guard()
    found: object = getattr(import_module(f".{_room(name)}", __name__), name)
    globals()[name] = found
    return found


def _guard() -> object:
    """Return `guard`, which is in a distribution of its own."""
    from importlib import import_module

    try:
        found: object = import_module("deedbook_guard").guard
    except ModuleNotFoundError as problem:
        if problem.name != "deedbook_guard":
            raise
        raise ImportError("deedbook.guard is in the distribution deedbook-guard: pip install deedbook-guard") from None
    globals()["guard"] = found
    return found


def _room(name: str) -> str:
    """Return the module that a public name is from."""
    match name:
        case "Kernel" | "open_kernel":
            return "kernel"
        case "Outcome" | "Ticket":
            return "call.handlers"
        case "Session":
            return "sessions.session"
        case "Fold":
            return "format.folds"
        case "parse" | "parse_payload":
            return "format.canonical"
        case "DomainError" | "Err" | "Ok" | "Result":
            return "format.errors"
        case "DeedbookError" | "IntakeError" | "NotJsonError" | "SessionRefused":
            return "format.errors"
        case _:
            return "contract"
