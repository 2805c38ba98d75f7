"""Deedbook: every capability of an agent passes one door and leaves a line in a tamper-evident ledger.

Plugins import their contract from here; programs open a workspace with `open_kernel`.
"""

from typing import TYPE_CHECKING, Any

from .contracts import (
    ALLOW,
    Call,
    Ctx,
    Decision,
    Entry,
    Event,
    Failed,
    Fold,
    GateSpec,
    HandlerSpec,
    Host,
    Json,
    Object,
    Principal,
    Run,
    Secret,
    Skill,
    allow,
    ask,
    deny,
    hookimpl,
    transform,
)
from .errors import DeedbookError, DomainError, Err, Ok, Result

if TYPE_CHECKING:
    from .kernel import Kernel, open_kernel
    from .session import Session

__all__ = [
    "ALLOW",
    "Call",
    "Ctx",
    "Decision",
    "DeedbookError",
    "DomainError",
    "Entry",
    "Err",
    "Event",
    "Failed",
    "Fold",
    "GateSpec",
    "HandlerSpec",
    "Host",
    "Json",
    "Kernel",
    "Object",
    "Ok",
    "Principal",
    "Result",
    "Run",
    "Secret",
    "Session",
    "Skill",
    "allow",
    "ask",
    "deny",
    "hookimpl",
    "open_kernel",
    "transform",
]


def __getattr__(name: str) -> Any:
    """Import the kernel when it is asked for: a plugin's contract does not need it."""
    if name in ("Kernel", "open_kernel"):
        from . import kernel  # noqa: PLC0415 - that is what this function is for

        return getattr(kernel, name)
    if name == "Session":
        from .session import Session  # noqa: PLC0415 - as above

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
