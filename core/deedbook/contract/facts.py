"""The facts beyond a call that gates may read: names and JSON Schemas."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from deedbook.contract import Object

_COUNTS: Final = {"type": "object", "additionalProperties": {"type": "integer"}}
_SPENT: Final = {
    "type": "object",
    "properties": {
        "input_tokens": {"type": "number"},
        "output_tokens": {"type": "number"},
        "cost_usd": {"type": "number"},
    },
}
FACTS: Final[Mapping[str, Object]] = MappingProxyType(
    {
        "session.calls": _COUNTS,
        "session.usage": _SPENT,
        "session.started": {"type": "string"},
        "context.state": {"type": ["string", "null"]},
    }
)
"""Each fact of the kernel, and the JSON Schema of its value; features may offer more (`FeatureSpec.facts`)."""


def empty_facts(names: Iterable[str]) -> dict[str, Object]:
    """Return the facts of features among *names*, as they are before anything happened: empty objects."""
    return {name: {} for name in names if name not in FACTS}
