"""Event types as data: the families of the kernel's catalogue, and the types that a charter declares; pure.

A family is the first part of a type's name. A line does not hold its layer: the layer follows from the type, so that
old ledgers have one as well (``docs/decisions/0068-layers-are-derived.md``).
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

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
"""Every layer of the runtime (seed 000's architecture), and its subject."""


@attrs.frozen
class Family:
    """Event types with a common first part: their *layer*, and the rest of each name.

    *intent* is the type that begins a call; *outcomes* are the types that end it, each under its intent. *second* are
    the types whose payload has a second version: it says ``"schema_version": "v2"``; *third* and *fourth* are those
    with a third and a fourth one.
    """

    name: str
    layer: str
    types: tuple[str, ...]
    intent: str = ""
    outcomes: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    third: tuple[str, ...] = ()
    fourth: tuple[str, ...] = ()


FAMILIES: Final = (
    # the record, and what keeps it
    Family("session", "L4", ("start", "end", "forked", "linked", "suspended", "resumed"), second=("start",)),
    Family(
        "ledger", "L4",
        ("created", "charter", "session", "recovered", "key", "leaf", "checkpoint", "witnessed", "excised", "imported",
         "received"),
    ),
    Family("system", "L4", ("clock_regressed", "boot", "run", "shutdown")),
    Family("call", "L4", ("served", "diverged", "settled")),
    Family("event", "L4", ("amended",)),
    Family("payload", "L4", ("erased",)),
    # who works with whom: requests, roles, hand-overs, and the typed state of a run
    Family("user", "L3", ("message",), second=("message",)),
    Family("agent", "L3", ("reply", "transition")),
    Family("worker", "L3", ("report",)),
    Family("flow", "L3", ("call", "result", "error"), intent="call", outcomes=("result", "error")),
    Family(
        "context", "L3",
        (
            "created", "clarified", "scoped", "planned", "executing", "verifying", "completed", "failed", "halted",
            "needs_human", "resumed", "noted",
        ),
        second=("created", "verifying"),
    ),
    Family("run", "L3", ("value", "branch"), second=("value", "branch"), third=("branch",)),
    Family("persona", "L3", ("bound",)),
    # capabilities, behind the door; memory is one of their kinds
    Family(
        "tool", "L1", ("call", "result", "error", "denied", "unasked"), intent="call", outcomes=("result", "error"),
        second=("denied",),
    ),
    Family(
        "memory", "L1",
        (
            "call", "result", "error", "proposed", "checked", "committed", "refused", "retracted", "quarantined",
            "snapshot", "migrated", "imported",
        ),
        intent="call", outcomes=("result", "error"),
    ),
    Family("task", "L1", ("created", "updated", "denied", "started", "ended", "decided", "deleted")),
    Family("action", "L1", ("received", "started", "done", "refused")),
    Family("bridge", "L1", ("session", "told", "undelivered", "refused")),
    Family(
        "llm", "L2", ("request", "response", "error"), intent="request", outcomes=("response", "error")
    ),
    Family("skill", "L5", ("invoke", "complete")),
    # what decides between a request and its effect; a policy asks the person who approves
    Family("hook", "L6", ("fired",)),
    Family("policy", "L6", ("check",), second=("check",)),
    Family(
        "approval", "L6",
        (
            "requested", "granted", "refused", "expired", "withdrawn", "resumed", "answered", "used", "deferred",
            "served",
        ),
        second=("requested",), third=("requested",), fourth=("requested",),
    ),
    Family("schema", "L7", ("violation",)),
    Family("swe", "L8", ()),
    Family("workflow", "L8", ()),
)  # fmt: skip
"""Every family of the kernel and of Deedbook's own features."""

CATALOGUE: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{family.name}.{rest}": f"event_{family.name}_{rest}_v1"
        for family in FAMILIES
        for rest in family.types
    }
)  # fmt: skip
"""Every event type of these families, and the id of its payload's schema; `schema_of` knows further versions."""

LATER: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        f"{family.name}.{rest}": {
            version: f"event_{family.name}_{rest}_{version}"
            for version, types in (("v2", family.second), ("v3", family.third), ("v4", family.fourth))
            if rest in types
        }
        for family in FAMILIES
        for rest in family.second
    }
)  # fmt: skip
"""The event types whose payload has further versions, and the id of the schema of each."""
PAYLOAD_SCHEMAS: Final = (*CATALOGUE.values(), *(schema for later in LATER.values() for schema in later.values()))
"""The ids of the schemas of all versions of payloads."""

OUTCOMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        f"{family.name}.{family.intent}": frozenset(f"{family.name}.{rest}" for rest in family.outcomes)
        for family in FAMILIES
        if family.intent
    }
)
"""Each intent, and the outcomes that may close it; an outcome's parent is its intent."""

RUN_ENDS: Final = ("DONE", "FAIL")
"""What the last ``agent.transition`` of a run leads to instead of a role."""
PLUGIN_PREFIX: Final = "x."
"""The prefix of plugins' event types: ``x.<plugin>.<name>``."""

_LAYER_OF: Final[Mapping[str, str]] = MappingProxyType({family.name: family.layer for family in FAMILIES})


def schema_of(event_type: str, payload: Any) -> str | None:
    """Return the id of the schema of a payload of the catalogue's types; a payload names its version from 2 on."""
    if event_type in LATER and isinstance(payload, Mapping):
        version = payload.get("schema_version")
        if isinstance(version, str) and version in LATER[event_type]:
            return LATER[event_type][version]
    return CATALOGUE.get(event_type)


def plugin_family(event_type: str) -> str:
    """Return the family of a plugin's event type (``x.shop`` of ``x.shop.sold``), otherwise an empty text."""
    return ".".join(event_type.split(".")[:2]) if event_type.startswith(PLUGIN_PREFIX) else ""


def family_of(plugin: str) -> str:
    """Return the family of a plugin's event types, by the name of its entry point."""
    return PLUGIN_PREFIX + re.sub("[^a-z0-9]+", "_", plugin.lower()).strip("_")


@attrs.frozen
class DeclaredTypes:
    """The event types that a charter declares for its plugins: its section ``records``, by type."""

    rows: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def layer(self, event_type: str) -> str | None:
        """Return the layer of an event type, such as ``L1``; ``None`` if its plugin declares none."""
        row = self.rows.get(event_type)
        return (row["layer"] or None) if row else _LAYER_OF.get(event_type.partition(".")[0])

    def text(self, event_type: str) -> str:
        """Return the text of an event type (`contract.EventType`); empty if its plugin declares none."""
        row = self.rows.get(event_type)
        return str(row["text"]) if row else ""


NOTHING_DECLARED: Final = DeclaredTypes()
