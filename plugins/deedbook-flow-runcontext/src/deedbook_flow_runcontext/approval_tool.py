"""The tool and the flow ``plan-approval``: they do nothing, so that a person can be asked before something happens.

An ability with one of them and the tag ``approval-gate`` asks a person at every call. The arguments show the subject,
and the approval is bound to them. The tool is in the scope of a flow if its skill allows it. An ability with the flow
can also stand in the ``uses:`` of the flow that asks; then every skill can be used, and no role can call it.
"""

from typing import Any, Final

from deedbook import Ctx, HandlerSpec, Host, Object

_TAKES: Final = {
    "type": "object",
    "required": ["step", "description", "tags"],
    "properties": {
        "step": {"type": "string", "description": "The id of the step, or what is decided."},
        "description": {"type": "string", "description": "What the step does, or what the approval means."},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Why a person is asked."},
        "ability": {"type": "string", "description": "The ability that the step calls."},
        "args": {"type": "object", "description": "Its arguments, or what the decision is about."},
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
    """The tool, and the flow without a context: returns the id of the step."""

    spec = HandlerSpec(takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Any, ctx: Ctx) -> dict[str, Any]:  # noqa: ARG002 - the contract gives every handler a context
        """Return which step is approved."""
        return {"approved": args["step"]}
