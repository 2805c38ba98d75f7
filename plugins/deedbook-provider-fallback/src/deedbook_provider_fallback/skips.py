"""The event that records why a model was not asked: its circuit breaker is open."""

from typing import Final

from deedbook import EventType, Object

SKIPPED: Final = "x.fallback.skipped"

_TIME: Final = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
_SCHEMA: Final[Object] = {
    "type": "object",
    "required": ["model", "failures", "code", "since", "until"],
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "The ability that was not asked."},
        "failures": {"type": "integer", "minimum": 1, "description": "How often it has failed in a row."},
        "code": {"type": "string", "minLength": 1, "description": "The code of the last failure."},
        "since": {**_TIME, "description": "When it failed last, and the breaker opened."},
        "until": {**_TIME, "description": "When it may be asked again."},
    },
    "additionalProperties": False,
}
RECORDS: Final = {
    SKIPPED: EventType(
        schema=_SCHEMA, text="{model} is not asked until {until}: {failures} failures in a row ({code})", layer="L2"
    )
}
"""The event types of the provider."""
