"""Names of abilities as names of MCP tools, and back.

The protocol's own letters are ``A-Z a-z 0-9 _ - .``, at most 128; ids of abilities also have ``/`` between segments,
each of which begins with a letter or a digit.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from deedbook import DeedbookError, DomainError

LONGEST: Final = 128
_SLASH: Final = "__"
_MARK: Final = 9


def tool_name(ability: str) -> str:
    """Return the name of *ability* as a tool: ``git/git_status`` is ``git__git_status``.

    An id that has two underscores itself, or is too long, ends with eight hex digits of its SHA-256, so that no two
    abilities share a name, whatever other abilities there are.
    """
    name = ability.replace("/", _SLASH)
    if _SLASH not in ability and len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - _MARK]}-{sha256(ability.encode()).hexdigest()[: _MARK - 1]}"


def by_tool_name(abilities: Iterable[str]) -> Mapping[str, str]:
    """Return the abilities by the names of their tools, in the order of their ids; raises `DeedbookError`."""
    named: dict[str, str] = {}
    for ability in sorted(abilities):
        name = tool_name(ability)
        if name in named:
            why = f"abilities {named[name]!r} and {ability!r} would both be the tool {name!r}; rename one"
            raise DeedbookError(DomainError("binding", "BINDING_INVALID", why))
        named[name] = ability
    return named
