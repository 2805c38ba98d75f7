"""What is asked before a tool runs."""

import re
from typing import ClassVar, Final

from deedbook.contract import Call, Decision, GateSpec, Host, Object, allow, deny, hookimpl

DANGEROUS: Final = ("rm", "delete", "drop_table")
"""The names that are denied where YAML says none."""

_NOTHING: Final[Object] = {"type": "object", "additionalProperties": False}
_NAMES: Final[Object] = {
    "type": "object",
    "properties": {
        "names": {
            "description": "Names or globs of abilities that are denied; without / they fit the last part of an id",
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "minLength": 1},
        }
    },
    "additionalProperties": False,
}


class Allow:
    """Allows every call; any other answer counts more."""

    spec: ClassVar[GateSpec] = GateSpec(settings=_NOTHING, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:
        """Bind; there is nothing to set."""

    @hookimpl
    def pre_tool_use(self, call: Call) -> Decision:  # noqa: ARG002 - the event's signature
        """Allow."""
        return allow()


class DenyTools:
    """Denies the abilities on its list, whatever a skill or a policy says."""

    spec: ClassVar[GateSpec] = GateSpec(settings=_NAMES, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        names = settings.get("names", DANGEROUS)
        self._listed = re.compile("|".join(map(_pattern, names)), re.DOTALL).fullmatch

    @hookimpl
    def pre_tool_use(self, call: Call) -> Decision:
        """Deny if the ability's id, or its last part, is on the list; case does not count."""
        if self._listed(call.ability.casefold()):
            return deny(f"{call.ability} is on the list of dangerous tools")
        return allow()


def _pattern(name: str) -> str:
    """Return the regular expression of a name: ``*`` within a segment, ``**`` across, without ``/`` the last part."""
    parts = re.split(r"(\*+)", name.casefold())
    stars = {"": "", "*": "[^/]*"}
    glob = "".join(stars.get(part, ".*") if part.strip("*") == "" else re.escape(part) for part in parts)
    return glob if "/" in name else f"(?:.*/)?{glob}"
