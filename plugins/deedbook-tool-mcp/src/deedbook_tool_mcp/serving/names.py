"""Names of abilities as names of MCP tools, and back.

The protocol allows ``A-Z a-z 0-9 _ - .``, at most 128; ids of abilities also have ``/`` between segments, each of which
begins with a letter or a digit.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from deedbook import DeedbookError, DomainError

MAX_NAME: Final = 128
_SLASH: Final = "__"
_MARK: Final = 9


def build_tool_name(ability: str) -> str:
    """Return the name of *ability* as a tool: ``git/git_status`` is ``git__git_status``.

    An id that has two underscores itself, or is too long, ends with eight hex digits of its SHA-256, so that no two
    abilities share a name.
    """
    name = ability.replace("/", _SLASH)
    if _SLASH not in ability and len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - _MARK]}-{sha256(ability.encode()).hexdigest()[: _MARK - 1]}"


def index_by_tool_name(abilities: Iterable[str]) -> Mapping[str, str]:
    """Return the abilities by the names of their tools, in the order of their ids; raises `DeedbookError`."""
    abilities_by_name: dict[str, str] = {}
    for ability in sorted(abilities):
        name = build_tool_name(ability)
        if name in abilities_by_name:
            why = f"abilities {abilities_by_name[name]!r} and {ability!r} would both be the tool {name!r}; rename one"
            raise DeedbookError(DomainError("binding", "BINDING_INVALID", why))
        abilities_by_name[name] = ability
    return abilities_by_name
