"""The results of commands, in the forms of their schemas."""

from typing import Any

from deedbook import Json, Object
from deedbook_flow_swe.contract import Command


def parse_result(command: Command, result: Json, *, task: str, unit: Object | None) -> Any:
    """Return what *result* says."""
    return result
