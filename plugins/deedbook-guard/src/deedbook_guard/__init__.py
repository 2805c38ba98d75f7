"""Govern the tools of a Python program: `guard` finds the workspace, and its object judges and records each call."""

from .conversation import CallDenied, Conversation, Permit, ResultWithheld
from .frameworks import check_framework
from .guard import Guard, guard
from .subclassing import govern_object, owner_of

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
