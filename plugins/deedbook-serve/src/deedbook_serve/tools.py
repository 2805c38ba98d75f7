"""The tools of a declared coding agent as abilities, from the agent's table and the workspace's declarations."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from deedbook.contract import Object
from deedbook.policy.bound import EXTERNAL, OWN_MODEL
from deedbook.policy.gates import ASK_BY_DEFAULT
from deedbook.policy.match import EFFECTS
from deedbook.workspace.declarations import AbilitySource, ClientSource, RoutingHints

from .agents import MCP, OTHER, CodingAgent, build_input_schema, find_agent

_UNKNOWN_TOOL: Final[Object] = {"tool": {"type": "string"}, "input": {"type": "object"}}
_SHARED_ABILITIES: Final[Mapping[str, Object]] = MappingProxyType(
    {
        OTHER: {
            "summary": "An undeclared tool of the agent.",
            "effects": "write",
            "paths": ["/none"],
            "required": ["tool", "input"],
            "properties": _UNKNOWN_TOOL,
        },
        MCP: {
            "summary": "An undeclared tool of one of the agent's MCP servers.",
            "effects": "write",
            "paths": ["/none"],
            "required": ["tool", "server", "input"],
            "properties": {**_UNKNOWN_TOOL, "server": {"type": "string"}},
        },
    }
)
PROGRAM: Final = "program"
"""The kind of a client that is a program with tools of its own, not a coding agent."""
_PROGRAM_TOOL: Final[Object] = {"summary": "A tool of the program, as the workspace declares it.", "effects": "write"}
_PROGRAM_UNKNOWN: Final[Object] = {
    **_SHARED_ABILITIES[OTHER],
    "summary": "An undeclared tool of the program.",
}
_DEFAULT: Final[Object] = {"summary": "A tool of the agent's, as the workspace declares it.", "effects": "write"}


def get_agent_kind(client: ClientSource) -> str:
    """Return the name of the agent that a client declares."""
    return client.kind or client.id


def build_abilities(client: ClientSource) -> Iterator[AbilitySource]:
    """Yield the abilities of a client that is a supported coding agent; yield none for any other client."""
    if client.kind == PROGRAM:
        yield from _program_abilities(client)
        return
    agent = find_agent(get_agent_kind(client))
    if agent is None:
        return
    for tool in sorted({*agent.tools, *client.tools} - _SHARED_ABILITIES.keys()):
        yield _ability(client, tool, {**_DEFAULT, **agent.tools.get(tool, {})})
    tags = _unknown_tags(client)
    for name in (OTHER, *((MCP,) if agent.mcp else ())) if client.unknown_tools != "deny" else ():
        yield _ability(client, name, {**_SHARED_ABILITIES[name], "tags": tags})


def _program_abilities(client: ClientSource) -> Iterator[AbilitySource]:
    """Yield the abilities of a program that calls its own tools (`deedbook.guard`)."""
    for tool in sorted({*client.tools} - {OTHER, OWN_MODEL}):
        yield _ability(client, tool, _PROGRAM_TOOL)
    if client.unknown_tools != "deny":
        yield _ability(client, OTHER, {**_PROGRAM_UNKNOWN, "tags": _unknown_tags(client)})
    yield AbilitySource(
        id=f"{client.id}/{OWN_MODEL}",
        place=client.place,
        origin=client.origin,
        summary="A model that the program asks itself.",
        handler={"tool": EXTERNAL},
        kind="model",
        effects="read",
    )


def _unknown_tags(client: ClientSource) -> list[str]:
    return ["approval-gate", ASK_BY_DEFAULT] if client.unknown_tools == "ask" else []


def find_problems(client: ClientSource) -> Iterator[tuple[str, str]]:
    """Yield the faults of a workspace's declaration of a client: a JSON pointer into it, and a message."""
    if client.kind == PROGRAM:
        yield from _program_problems(client)
        return
    agent = find_agent(get_agent_kind(client))
    if agent is None:
        if client.kind is not None:
            from .agents import list_agents  # noqa: PLC0415 - only needed for a message

            known = ", ".join((*list_agents(), PROGRAM))
            yield "/kind", f"{client.kind!r} is no coding agent that is known here; known are {known}"
        if client.tools:
            yield "/tools", "tools are said of a coding agent that is known here; name it with kind:"
        return
    for tool, declared in client.tools.items():
        least = _lowest_effects(agent, tool)
        effects = declared.get("effects", least)
        if least is not None and EFFECTS.index(effects) < EFFECTS.index(least):
            why = f"effects {effects} are lower than {least}, which is what {tool} of {agent.title} does"
            yield f"/tools/{tool}/effects", f"{why}; they may be raised, never lowered"


def _program_problems(client: ClientSource) -> Iterator[tuple[str, str]]:
    if client.tools.get(OTHER, {}).get("effects", "write") in ("none", "read"):
        yield f"/tools/{OTHER}/effects", "effects of unknown tools are at least write; they may be raised"
    own = f"{client.id}/{OWN_MODEL}"
    if OWN_MODEL in client.tools:
        yield f"/tools/{OWN_MODEL}", f"{own} is the ability for the models that the program asks; rename the tool"
    if client.id == OWN_MODEL:
        yield "", f"ids that begin with {OWN_MODEL}/ are the profile's models; choose another name for the program"


def _lowest_effects(agent: CodingAgent, tool: str) -> str | None:
    if tool in _SHARED_ABILITIES:
        return str(_SHARED_ABILITIES[tool]["effects"])
    return agent.tools[tool]["effects"] if tool in agent.tools else None


def _ability(client: ClientSource, tool: str, table: Mapping[str, Any]) -> AbilitySource:
    declared: Any = client.tools.get(tool, {})
    return AbilitySource(
        id=f"{client.id}/{tool}",
        place=client.place,
        origin=client.origin,
        summary=declared.get("summary", table["summary"]),
        handler={"tool": EXTERNAL},
        effects=declared.get("effects", table["effects"]),
        tags=frozenset((*table.get("tags", ()), *declared.get("tags", ()))),
        hooks={moment: tuple(names) for moment, names in declared.get("hooks", {}).items()},
        policies=tuple(declared.get("policies", ())),
        routing_hints=RoutingHints(scopes=frozenset(declared.get("scopes", ()))),
        schema_in=declared.get("schema_in", build_input_schema(table)),
        paths=tuple(declared.get("paths", table.get("paths", ()))),
    )
