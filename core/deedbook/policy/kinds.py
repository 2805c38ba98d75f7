"""The kinds of abilities as data: their events, and how their calls differ in matching, policies and scope; pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of abilities.

    *intent*, *result* and *error* are the types of its events, *actor* acts in the last two. In their payloads *named*
    is the member with the ability's name, *given* the one with the arguments, *answer* the one with the result.

    *is_default*: a match without ``kind`` fits it. *needs_policy*: a call that no policy applies to is denied.
    *is_listed*: its abilities are reported if no policy applies to them. *has_prefix*: a glob of ``uses`` matches its
    abilities only by their full id, or if the glob begins with the kind's name and a slash. *tools* are the tools that
    only abilities of this kind use, each with the access to a zone that it needs.
    """

    intent: str
    result: str
    error: str
    actor: str
    named: str
    given: str = "args"
    answer: str = "result"
    is_default: bool = False
    needs_policy: bool = False
    is_listed: bool = True
    has_prefix: bool = False
    tools: Mapping[str, str] = attrs.field(factory=dict)


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "tool": Kind(
            intent="tool.call", result="tool.result", error="tool.error", actor="tool", named="tool_name",
            is_default=True,
        ),
        "flow": Kind(
            intent="flow.call", result="flow.result", error="flow.error", actor="runtime", named="flow",
            is_default=True,
        ),
        "model": Kind(
            intent="llm.request", result="llm.response", error="llm.error", actor="agent", named="ability",
            given="request", answer="response", is_listed=False, has_prefix=True,
        ),
        "memory": Kind(
            intent="memory.call", result="memory.result", error="memory.error", actor="runtime", named="ability",
            needs_policy=True, is_listed=False, has_prefix=True,
            tools={"memory-read": "read", "memory-propose": "propose", "memory-retract": "retract"},
        ),
    }
)  # fmt: skip
"""All kinds; the formats of charters and ledgers fix them, so that a ledger is judged again without their plugins."""
DEFAULT_KINDS: Final = tuple(name for name, kind in KINDS.items() if kind.is_default)
KIND_OF_TOOL: Final[Mapping[str, str]] = MappingProxyType({tool: name for name in KINDS for tool in KINDS[name].tools})
"""The kind of abilities that each tool is reserved for."""
