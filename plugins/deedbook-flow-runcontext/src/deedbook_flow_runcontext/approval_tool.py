"""The tool and the flow ``plan-approval``: they do nothing, so that a person can be asked before something happens.

An ability with one of them has the tag ``approval-gate``, so that every call asks a person; without the tag the
workspace does not start, and a call that no person has approved fails. The arguments show the subject, and the approval
is bound to them. The tool is in the scope of a flow if its skill allows it. An ability with the flow
can also stand in the ``uses:`` of the flow that asks; then every skill can be used, and no role can call it.
"""

from collections.abc import Iterable
from typing import Any, Final

from deedbook import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Object

from .approval import APPROVAL_MISSING
from .plans import APPROVAL_GATE

_REMEDY: Final = f"add to the ability: tags: [{APPROVAL_GATE}]"
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


def _check(declared: AbilityDeclaration) -> Iterable[tuple[str, str]]:
    """Return the fault of an ability whose calls would not ask a person."""
    if APPROVAL_GATE not in declared.tags:
        yield "/handler", f"its answer is that of a person, and no call of {declared.id} asks one; {_REMEDY}"


class PlanApproval:
    """The tool, and the flow without a context: returns the id of the step."""

    spec = HandlerSpec(takes=_TAKES, gives=_GIVES, effects="none", files="none", check=_check)

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Any, ctx: Ctx) -> dict[str, Any]:
        """Return which step is approved; raises `Failed` (`APPROVAL_MISSING`) if no person has approved this call."""
        if ctx.approval is None:
            raise Failed(APPROVAL_MISSING, f"no person has approved this call; {_REMEDY}")
        return {"approved": args["step"]}
