"""Which layer of the runtime an event belongs to: the eight of seed 000's architecture; pure.

A line does not hold its layer: it follows from the event's type, so that old ledgers have it as well and nobody can
write another one (``docs/decisions/0068-layers-are-derived.md``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["LAYERS", "layer_of"]

LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "L1": "tools",
        "L2": "models",
        "L3": "roles",
        "L4": "ledger",
        "L5": "skills",
        "L6": "hooks and policies",
        "L7": "schemas",
        "L8": "workflows",
    }
)
"""Every layer, and what it is about."""

_FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # capabilities, behind the boundary that every effect passes; memory is one of their kinds
        "tool": "L1",
        "task": "L1",
        "action": "L1",
        "bridge": "L1",
        "memory": "L1",
        "llm": "L2",
        # who works with whom: requests, roles, hand-overs, and the typed state of a run
        "user": "L3",
        "agent": "L3",
        "worker": "L3",
        "flow": "L3",
        "context": "L3",
        "persona": "L3",
        # the record and what keeps it
        "session": "L4",
        "ledger": "L4",
        "call": "L4",
        "event": "L4",
        "payload": "L4",
        "system": "L4",
        "skill": "L5",
        # whoever stands between a wish and its effect; a person who approves is asked by a policy
        "hook": "L6",
        "policy": "L6",
        "approval": "L6",
        "schema": "L7",
        "workflow": "L8",
    }
)


def layer_of(event_type: str) -> str | None:
    """Return the layer of an event type, such as ``L1``; ``None`` for one of a plugin's own (``x.…``)."""
    return _FAMILIES.get(event_type.partition(".")[0])
