"""The events of a cycle. Each stands under the ``flow.call`` of the cycle's run."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook import EventType, Object

STARTED: Final = "workflow.started"
ADVANCED: Final = "workflow.phase_advanced"
GATED: Final = "workflow.policy_gated"
COMPLETED: Final = "workflow.completed"
ABORTED: Final = "workflow.aborted"

DONE: Final = "done"
HALTED: Final = "halted"
ABORT: Final = "abort"
"""The verdicts: all phases are done, a bound stopped the cycle, or a signal, a hook or a failure did."""

_LAYER: Final = "L8"
_NAME: Final = {"type": "string", "minLength": 1}


def _payload(**members: Any) -> Object:
    return {"type": "object", "required": list(members), "properties": members, "additionalProperties": False}


EVENTS: Final[Mapping[str, EventType]] = MappingProxyType(
    {
        STARTED: EventType(
            schema=_payload(cycle_id=_NAME, session_id=_NAME, entry_phase=_NAME),
            text="{cycle_id} begins with {entry_phase}",
            layer=_LAYER,
        ),
        ADVANCED: EventType(
            schema=_payload(cycle_id=_NAME, from_phase=_NAME, to_phase=_NAME),
            text="{cycle_id}: {from_phase} → {to_phase}",
            layer=_LAYER,
        ),
        GATED: EventType(
            schema=_payload(
                cycle_id=_NAME,
                phase=_NAME,
                policy_id=_NAME,
                subject=_NAME,
                decision={"enum": ["allow", "advisory", "deny"]},
                reason={"type": "string"},
                check={"type": "string", "pattern": "^[0-9a-f]{16}$"},
            ),
            text="{policy_id}: {decision} ({subject}) {reason}",
            layer=_LAYER,
        ),
        COMPLETED: EventType(
            schema=_payload(cycle_id=_NAME, verdict={"enum": [DONE, HALTED]}),
            text="{cycle_id}: {verdict}",
            layer=_LAYER,
        ),
        ABORTED: EventType(
            schema=_payload(cycle_id=_NAME, reason={"type": "string", "minLength": 1}),
            text="{cycle_id} aborted: {reason}",
            layer=_LAYER,
        ),
    }
)
"""The event types with the schemas of their payloads. ``check`` is the span of the ``policy.check`` of the decision."""
