"""The tools of a declared coding agent as abilities: what its table says, and what the workspace says of each."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import Object
from deedbook.policy.bound import EXTERNAL
from deedbook.policy.gates import ASK_BY_DEFAULT
from deedbook.policy.match import EFFECTS
from deedbook.workspace.declarations import AbilitySource, ClientSource, RoutingHints

from .agents import MCP, OTHER, Known, known, takes

_NAMED: Final[Object] = {"tool": {"type": "string"}, "input": {"type": "object"}}
_SHARED: Final[Mapping[str, Object]] = MappingProxyType(
    {
        OTHER: {
            "summary": "A tool that the agent has and nobody declared.",
            "effects": "write",
            "paths": ["/none"],
            "required": ["tool", "input"],
            "properties": _NAMED,
        },
        MCP: {
            "summary": "A tool of an MCP server that the agent has and nobody declared.",
            "effects": "write",
            "paths": ["/none"],
            "required": ["tool", "server", "input"],
            "properties": {**_NAMED, "server": {"type": "string"}},
        },
    }
)
_PLAIN: Final[Object] = {"summary": "A tool of the agent's, as the workspace declares it.", "effects": "write"}


def kind_of(client: ClientSource) -> str:
    """Return the name of the agent that a client says it is."""
    return client.kind or client.id


def abilities(client: ClientSource) -> Iterator[AbilitySource]:
    """Yield the abilities of a client that is a known coding agent; of any other there are none."""
    agent = known(kind_of(client))
    if agent is None:
        return
    for tool in sorted({*agent.tools, *client.tools} - _SHARED.keys()):
        yield _ability(client, tool, {**_PLAIN, **agent.tools.get(tool, {})})
    tags = ["approval-gate", ASK_BY_DEFAULT] if client.unknown_tools == "ask" else []
    for name in (OTHER, *((MCP,) if agent.mcp else ())) if client.unknown_tools != "deny" else ():
        yield _ability(client, name, {**_SHARED[name], "tags": tags})


def problems(client: ClientSource) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with what a workspace says of a client: a JSON pointer into it, and a message."""
    agent = known(kind_of(client))
    if agent is None:
        if client.kind is not None:
            from .agents import names  # noqa: PLC0415 - only for a message

            yield "/kind", f"{client.kind!r} is no coding agent that is known here; known are {', '.join(names())}"
        if client.tools:
            yield "/tools", "tools are said of a coding agent that is known here; name it with kind:"
        return
    for tool, said in client.tools.items():
        least = _least(agent, tool)
        effects = said.get("effects", least)
        if least is not None and EFFECTS.index(effects) < EFFECTS.index(least):
            why = f"effects {effects} are lower than {least}, which is what {tool} of {agent.title} does"
            yield f"/tools/{tool}/effects", f"{why}; they may be raised, never lowered"


def _least(agent: Known, tool: str) -> str | None:
    if tool in _SHARED:
        return str(_SHARED[tool]["effects"])
    return agent.tools[tool]["effects"] if tool in agent.tools else None


def _ability(client: ClientSource, tool: str, table: Mapping[str, Any]) -> AbilitySource:
    said: Any = client.tools.get(tool, {})
    return AbilitySource(
        id=f"{client.id}/{tool}",
        place=client.place,
        origin=client.origin,
        summary=said.get("summary", table["summary"]),
        handler={"tool": EXTERNAL},
        effects=said.get("effects", table["effects"]),
        tags=frozenset((*table.get("tags", ()), *said.get("tags", ()))),
        hooks={moment: tuple(names) for moment, names in said.get("hooks", {}).items()},
        policies=tuple(said.get("policies", ())),
        routing_hints=RoutingHints(scopes=frozenset(said.get("scopes", ()))),
        schema_in=said.get("schema_in", takes(table)),
        paths=tuple(said.get("paths", table.get("paths", ()))),
    )
