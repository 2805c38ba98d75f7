"""What the flows in two modes share.

In the runtime mode, a flow writes all state to the context of its run, reads it from there, and returns nothing. In the
standalone mode there is no context: the records are kept for the result. A flow is one of the two, so the same state is
never written twice. Both modes make the same calls through the door.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

from deedbook import Json, Object, Run

PROMPT: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}},
    "additionalProperties": False,
}
"""The arguments of a flow that takes a prompt."""


class Records(Protocol):
    """The records of one run, by type."""

    def write(self, record_type: str, data: Object) -> None:
        """Add a record."""

    def read(self, record_type: str) -> list[Object]:
        """Return the records of a type, in order."""


class ContextRecords:
    """The records in the execution log of a context."""

    def __init__(self, run: Run) -> None:
        self._context = run.context

    def write(self, record_type: str, data: Object) -> None:
        """Add a note to the context."""
        self._context.note(record_type, data)

    def read(self, record_type: str) -> list[Object]:
        """Return the notes of a type, as the context has them."""
        return [entry.data for entry in self._context.read().log if entry.event_type == record_type]


class ResultRecords:
    """The records of a standalone flow, for its result."""

    def __init__(self) -> None:
        self._records: list[tuple[str, Object]] = []

    def write(self, record_type: str, data: Object) -> None:
        """Add a record."""
        self._records.append((record_type, data))

    def read(self, record_type: str) -> list[Object]:
        """Return the records of a type, in order."""
        return [data for each, data in self._records if each == record_type]


def build_clarification(intent: str, **more: Json) -> dict[str, Any]:
    """Return a ``clarification_v1`` without constraints; *more* are members of the flow's own."""
    return {"intent": intent or "(nothing)", "constraints": [], **more, "schema_version": "v1"}


def build_report(output: str, *, completed: list[str], calls: list[str]) -> dict[str, Any]:
    """Return a ``worker_report_v1``."""
    return {"output": output, "steps_completed": completed, "tool_calls_made": calls, "schema_version": "v1"}


def build_chain(steps: Mapping[str, str]) -> dict[str, Any]:
    """Return a ``plan_v2`` whose *steps*, abilities by id, come one after the other."""
    names = list(steps)
    made = [
        {
            "id": name,
            "description": f"Call {steps[name]}.",
            "ability": steps[name],
            "depends_on": names[max(at - 1, 0) : at],
        }
        for at, name in enumerate(names)
    ]
    return {"steps": made, "risks": [], "needs_advisor": False, "schema_version": "v2"}


def describe_value(value: Json) -> str:
    """Return a result as text: a text itself, the member ``text`` of an object, otherwise JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
