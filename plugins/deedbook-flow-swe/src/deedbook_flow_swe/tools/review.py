"""The tool ``swe-review``: a question to a person. It does nothing, so that a person is asked before it is called.

The ability has the tag ``approval-gate``; without it the workspace does not start. A person who approves the call
decides what *approves* says; a person who refuses it decides the opposite, and the flow reads their note from the
refusal. A call that no person has approved fails.
"""

from collections.abc import Iterable
from typing import Final

from deedbook.contract import AbilityDeclaration, Ctx, Failed, HandlerSpec, Host, Json, Object
from deedbook_tool_standard.shapes import strict

from .shapes import DIGEST

DECISIONS: Final = ("go-on", "rework", "stop")
APPROVAL_GATE: Final = "approval-gate"
"""The tag with which each call of an ability asks a person."""
APPROVAL_MISSING: Final = "APPROVAL_MISSING"
"""The code of a call that no person has approved."""
_REMEDY: Final = f"add to the ability: tags: [{APPROVAL_GATE}]"
_TEXT: Object = {"type": "string", "maxLength": 20_000}


def _check(declared: AbilityDeclaration) -> Iterable[tuple[str, str]]:
    """Return the fault of an ability whose calls would not ask a person."""
    if APPROVAL_GATE not in declared.tags:
        yield "/handler", f"its answer is that of a person, and no call of {declared.id} asks one; {_REMEDY}"


class SweReview:
    """Ask a person: ``{task, phase, issue, reason, seen, approves?}`` to ``{decision, note}``.

    *seen* has the digests of the files that the decision is about: an approval is bound to them. *approves* is the
    decision that an approval stands for, ``go-on`` unless it is said.
    """

    spec = HandlerSpec(
        settings=strict({}),
        takes=strict(
            {
                "task": {"type": "string", "minLength": 1, "maxLength": 128},
                "phase": {"type": "string", "minLength": 1, "maxLength": 128},
                "issue": _TEXT,
                "reason": _TEXT,
                "seen": {"type": "object", "additionalProperties": DIGEST, "description": "The files, by path."},
                "approves": {"enum": list(DECISIONS), "default": DECISIONS[0]},
            },
            optional=frozenset({"approves"}),
        ),
        gives=strict({"decision": {"enum": list(DECISIONS)}, "note": {"type": "string"}}),
        effects="none",
        files="none",
        check=_check,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Object, ctx: Ctx, /) -> Json:
        """Return what was approved; raises `Failed` (`APPROVAL_MISSING`) if no person has approved this call."""
        if ctx.approval is None:
            raise Failed(APPROVAL_MISSING, f"no person has approved this call; {_REMEDY}")
        return {"decision": args.get("approves", DECISIONS[0]), "note": ""}
