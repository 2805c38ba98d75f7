"""The coding agents whose hooks are known, each from a table: its events, its fields, its tools."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import orjson

from deedbook.contracts import Object
from deedbook.schema import data_folder

Moment: TypeAlias = Literal[
    "begin", "prompt", "before", "dialogue", "after", "failed", "refused", "stop", "compact", "told", "end"
]
"""What an agent's event is to us: a session begins or ends, a prompt comes, a tool is about to be used (`before`), the
agent asks its person (`dialogue`), a tool was used, failed, or was refused by the agent itself; it wants to stop, it
wants to shorten what it knows; anything else is told."""

OTHER: Final = "other"
"""The ability of all tools that an agent has and nobody declared."""


@attrs.frozen(kw_only=True)
class Known:
    """A coding agent. *events* maps its names to moments, *fields* ours to its own (empty: it has none such).

    *dialect* is the form of its answers, *can* what beside a denial it understands: ``ask``, ``change``. *settings* is
    the file, relative to a project, that names its hooks. *source* is where all this was read, *tried* whether anybody
    ran it.
    """

    agent: str
    title: str
    dialect: Literal["claude", "copilot", "gemini"]
    source: str
    tried: bool
    settings: str
    can: frozenset[str]
    fields: Mapping[str, str]
    events: Mapping[str, Moment]
    tools: Mapping[str, Mapping[str, Any]]

    def event(self, moment: Moment) -> str | None:
        """Return the agent's first event of that kind."""
        return next((name for name, each in self.events.items() if each == moment), None)


def names() -> tuple[str, ...]:
    """Return the names of all agents that are known, sorted."""
    return tuple(sorted(place.stem for place in data_folder("bridges").glob("*.json")))


def known(name: str) -> Known | None:
    """Return what is known of the agent *name*."""
    if name not in names():
        return None
    said: Any = orjson.loads((data_folder("bridges") / f"{name}.json").read_bytes())
    del said["schema_version"]
    return Known(**{**said, "can": frozenset(said["can"])})


def takes(tool: Mapping[str, Any]) -> Object:
    """Return the JSON Schema of a tool's input: what is known of it is typed, and anything may stand beside it."""
    schema = {"type": "object", "properties": dict(tool.get("properties", {}))}
    return {**schema, "required": list(tool["required"])} if "required" in tool else schema
