"""The events of a task in a pipeline. Each stands under the ``flow.call`` of the task's run, or under a branch of it.

Rewards, metrics and renderings are folds of these events (`task_record`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook import EventType, Object

TASK_STARTED: Final = "swe.task_started"
PHASE_STARTED: Final = "swe.phase_started"
CONTEXT_ASSEMBLED: Final = "swe.context_assembled"
MODEL_CHOSEN: Final = "swe.model_chosen"
PHASE_BLOCKED: Final = "swe.phase_blocked"
ROLLED_BACK: Final = "swe.rolled_back"
ESCALATED: Final = "swe.escalated"
ANSWERED: Final = "swe.answered"
PHASE_COMPLETED: Final = "swe.phase_completed"
TASK_ENDED: Final = "swe.task_ended"
REWARDED: Final = "swe.rewarded"
PATTERN_PROMOTED: Final = "swe.pattern_promoted"
DENIED: Final = "swe.denied"
RENDERING_EDITED: Final = "swe.rendering_edited"

BLOCKERS: Final = ("input", "agent", "rule", "denied", "human", "model")
"""What blocks a phase: an input, its agent, a rule, a denial at the door, or a person."""
REPOSITORY: Final = "repository"
"""The rule of a block, by an input, if git does not merge into the project's repository as it is now."""
CONFLICT: Final = "merge-conflict"
"""The rule of a block, by an input, if git cannot merge the repository's last commit into the task's copy."""
DECISIONS: Final = ("go-on", "rework", "stop")
"""What a person decides."""
ENDS: Final = ("done", "failed", "halted")
"""How a task ends."""

_LAYER: Final = "L8"
_NAME: Final = {"type": "string", "minLength": 1}
_ANY_TEXT: Final = {"type": "string"}
_NAME_OR_NULL: Final = {"type": ["string", "null"], "minLength": 1}
_TEXTS: Final = {"type": "array", "items": _ANY_TEXT}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "integer", "minimum": 1}
_FLAG: Final = {"type": "boolean"}
_HASH: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_HASHES: Final = {"type": "object", "additionalProperties": _HASH}
_RATIO: Final = {"type": "number"}


def _object(members: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(members),
        "properties": {**members, **(optional or {})},
        "additionalProperties": False,
    }


def _list(**members: Any) -> Object:
    return {"type": "array", "items": _object(members)}


def _event(text: str, **members: Any) -> EventType:
    return EventType(schema=_object({"task_id": _NAME, **members}), text=text, layer=_LAYER)


_RUN: Final[Mapping[str, Any]] = {"phase": _NAME, "iteration": _NUMBER, "unit": _NAME_OR_NULL}

FACTS: Final[Object] = _object(
    {},
    {
        "tests": _object({"passed": _COUNT, "failed": _COUNT}),
        "coverage": _RATIO,
        "coverage_delta": _RATIO,
        "lint": _COUNT,
        "criteria": _TEXTS,
        "criteria_verified": _TEXTS,
        "architecture": _object({"checked": _COUNT, "violations": _COUNT}),
        "findings": _list(severity=_NAME, rule=_NAME, place=_ANY_TEXT),
        "regressions": _COUNT,
        "secrets": _COUNT,
        "tokens": _object({"read": _COUNT, "written": _COUNT}),
    },
)
"""The schema of the facts of a completed phase: what tools have reported, and nothing that a model has said."""

EVENTS: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        TASK_STARTED: _event(
            "{task_id} begins: {title}",
            title=_NAME, digest=_HASH, tags=_TEXTS, pipeline=_NAME, routing=_HASH, generated=_FLAG,
        ),
        PHASE_STARTED: _event("{task_id}: {phase} begins, run {iteration}", **_RUN, agent=_NAME),
        CONTEXT_ASSEMBLED: _event(
            "{task_id}: {phase} gets {tokens} of {budget} tokens",
            **_RUN, tokens=_COUNT, counted={"enum": ["provider", "estimate"]}, budget=_COUNT,
            parts=_list(path=_NAME, digest=_HASH, tokens=_COUNT), left_out=_TEXTS,
        ),
        MODEL_CHOSEN: _event(
            "{task_id}: {phase} asks {tier} ({reason})", **_RUN, tier=_NAME, rule=_NAME, reason=_ANY_TEXT
        ),
        PHASE_BLOCKED: _event(
            "{task_id}: {phase} is blocked by {by}: {reason}",
            **_RUN, by={"enum": list(BLOCKERS)}, rule=_NAME_OR_NULL, place=_NAME_OR_NULL, severity=_NAME_OR_NULL,
            issue=_NAME, reason=_ANY_TEXT, missing=_TEXTS,
        ),
        ROLLED_BACK: _event(
            "{task_id}: {from_phase} → back to {to_phase} ({count}): {reason}",
            from_phase=_NAME, to_phase=_NAME, issue=_NAME, reason=_ANY_TEXT, count=_NUMBER, cascade=_FLAG,
        ),
        ESCALATED: _event(
            "{task_id}: {phase} waits for a person: {reason}", phase=_NAME, issue=_NAME, reason=_ANY_TEXT
        ),
        ANSWERED: _event(
            "{task_id}: a person says {decision} about {phase}",
            phase=_NAME, issue=_NAME, decision={"enum": list(DECISIONS)}, note=_ANY_TEXT,
        ),
        PHASE_COMPLETED: _event(
            "{task_id}: {phase} is complete", **_RUN, gate=_NAME_OR_NULL, outputs=_HASHES, facts=FACTS
        ),
        TASK_ENDED: _event("{task_id}: {state}", state={"enum": list(ENDS)}, commit=_NAME_OR_NULL),
        REWARDED: _event("{task_id}: rewarded", reward={"type": "object"}),
        PATTERN_PROMOTED: _event("{task_id}: {kind} {pattern}", pattern=_NAME, kind=_NAME, tasks=_TEXTS),
        DENIED: _event(
            "{task_id}: {agent} may not use {ability} in {phase}: {reason}",
            **_RUN, agent=_NAME, ability=_NAME, code=_NAME, reason=_ANY_TEXT,
        ),
        RENDERING_EDITED: _event("{task_id}: {path} was edited", path=_NAME, found=_ANY_TEXT, expected=_HASH),
    }
)  # fmt: skip
"""Every event type of the flow, with its schema."""
