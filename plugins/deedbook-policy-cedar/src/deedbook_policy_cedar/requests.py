"""A call as Cedar sees it: principal, action, resource and context. Pure.

The principal is ``Principal::"<id>"`` in ``Role::"<role>"``, the action ``Action::"<ability>"``, the resource
``Ability::"<ability>"``; the context has the arguments and the circumstances of the call.
"""

from collections.abc import Iterator
from typing import Any, Final

from deedbook.contract import Call, Object
from deedbook.contract.pointers import join_pointer

_MAX_LONG: Final = 2**63 - 1
_ESCAPES: Final = frozenset({"__entity", "__extn", "__expr"})


def build_request(call: Call) -> dict[str, Any]:
    """Return the request for *call*; its arguments have no value that `find_unsupported` finds."""
    context: dict[str, Any] = {
        "args": call.args,
        "session": call.session,
        "mode": call.mode,
        "now": {"__extn": {"fn": "datetime", "arg": call.now}},
    }
    context |= {name: value for name, value in (("role", call.role), ("skill", call.skill)) if value is not None}
    return {
        "principal": _uid("Principal", call.principal.id),
        "action": _uid("Action", call.ability),
        "resource": _uid("Ability", call.ability),
        "context": context,
    }


def build_entities(call: Call) -> list[dict[str, Any]]:
    """Return the entities of a request: who calls, with roles, and what is called."""
    who = call.principal
    attributes = {"via": who.via}
    if who.on_behalf_of is not None:
        attributes["on_behalf_of"] = who.on_behalf_of
    ability = {
        "kind": call.kind,
        "effects": call.effects,
        "tags": sorted(call.tags),
        "scopes": sorted(call.scopes),
    }
    roles = [_uid("Role", role) for role in sorted(who.roles)]
    return [
        {"uid": _uid("Principal", who.id), "attrs": attributes, "parents": roles},
        {"uid": _uid("Ability", call.ability), "attrs": ability, "parents": []},
    ]


def find_unsupported(args: Object) -> str | None:
    """Return the first value in *args* that Cedar lacks, by its JSON pointer; ``None`` if there is none."""
    return next(_find_unsupported(args, ("args",)), None)


def _find_unsupported(value: Any, at: tuple[str | int, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name in _ESCAPES:
                yield f"{join_pointer(*at, name)} is a name that Cedar reserves"
            yield from _find_unsupported(each, (*at, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _find_unsupported(each, (*at, index))
    elif value is None:
        yield f"{join_pointer(*at)} is null, which Cedar lacks"
    elif isinstance(value, float):
        yield f"{join_pointer(*at)} is a number with a fraction or an exponent, which Cedar lacks"
    elif isinstance(value, int) and not isinstance(value, bool) and not -_MAX_LONG - 1 <= value <= _MAX_LONG:
        yield f"{join_pointer(*at)} is a number beyond 64 bits, which Cedar lacks"


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": name}
