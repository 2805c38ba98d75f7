"""Record ``x.timesheet.booked`` at the end of each session: the project, the minutes, the calls."""

from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Any

from deedbook import EventType, Object
from deedbook.contract.features import FeatureSpec, featureimpl
from deedbook.format.reader import read

BOOKED = "x.timesheet.booked"


class Timesheet:
    """The feature; its section names the *project*, and the step in minutes that time is rounded up to."""

    spec = FeatureSpec(
        settings={
            "type": "object",
            "required": ["project"],
            "properties": {
                "project": {"type": "string", "minLength": 1},
                "round_to": {"type": "integer", "minimum": 1},
            },
            "additionalProperties": False,
        },
        records={
            BOOKED: EventType(
                schema={
                    "type": "object",
                    "required": ["project", "minutes", "calls"],
                    "properties": {
                        "project": {"type": "string"},
                        "minutes": {"type": "integer", "minimum": 1},
                        "calls": {"type": "integer", "minimum": 0},
                    },
                    "additionalProperties": False,
                },
                text="{minutes} min on {project}, calls: {calls}",
                layer="L4",
            )
        },
    )

    @featureimpl
    def session_ending(self, session: Any, settings: Object) -> None:
        """Book the time from the session's first line to its last one."""
        events = list(read(Path(session.ledger.place)))
        begun, ended = (datetime.fromisoformat(event.ts) for event in (events[0], events[-1]))
        step = settings.get("round_to", 1)
        steps = max(1, ceil((ended - begun).total_seconds() / 60 / step))
        calls = sum(event.type == "tool.call" for event in events)
        session.record(BOOKED, {"project": settings["project"], "minutes": steps * step, "calls": calls})
