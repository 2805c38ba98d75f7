"""The tool ``swe-review``: a question to a person. It does nothing, so that a person is asked before it is called.

The ability has the tag ``approval-gate``. A person who approves the call decides what *approves* says; a person who
refuses it decides the opposite, and the flow reads their note from the refusal.
"""

from typing import Final

from deedbook.contract import Ctx, HandlerSpec, Host, Json, Object
from deedbook_tool_standard.shapes import strict

from .shapes import DIGEST

DECISIONS: Final = ("go-on", "rework", "stop")
_TEXT: Object = {"type": "string", "maxLength": 20_000}


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
    )

    def __init__(self, settings: Object, host: Host) -> None:
        """Take no settings."""

    def __call__(self, args: Object, _ctx: Ctx, /) -> Json:
        """Return what was approved."""
        return {"decision": args.get("approves", DECISIONS[0]), "note": ""}
