"""The tool ``plan-approval``: it does nothing, so that a person can be asked about a step before the step begins.

An ability with this tool and the tag ``approval-gate`` asks a person at every call. The arguments show the step, and
the approval is bound to them.
"""

from typing import Any, Final

from deedbook import Ctx, HandlerSpec, Host, Object

_TAKES: Final = {
    "type": "object",
    "required": ["step", "description", "tags"],
    "properties": {
        "step": {"type": "string", "description": "The id of the step."},
        "description": {"type": "string", "description": "What the step does."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Why a person is asked."},
        "ability": {"type": "string", "description": "The ability that the step calls."},
        "args": {"type": "object", "description": "Its arguments."},
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["approved"],
    "properties": {"approved": {"type": "string"}},
    "additionalProperties": False,
}


class PlanApproval:
    """The tool: returns the id of the step."""

    spec = HandlerSpec(takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Any, ctx: Ctx) -> dict[str, Any]:  # noqa: ARG002 - the contract gives every handler a context
        """Return which step is approved."""
        return {"approved": args["step"]}
