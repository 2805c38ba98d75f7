"""Which callers may read a zone of memory and propose to it: the scope of kinds whose tools need a zone; pure.

It depends only on the caller and the arguments, so that the answer can be derived again.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from deedbook.contract import Object
from deedbook.policy.bound import Caller
from deedbook.policy.conditions import glob_test
from deedbook.policy.kinds import KINDS

Outside: TypeAlias = Callable[[Caller, Object], str | None]
"""Returns why a call with these arguments is outside the caller's zones, or ``None``."""

WORLD: Final = "world_state"
LEGACY: Final = "legacy"
ZONES: Final = (WORLD, "decision", "observation", LEGACY)
MAX_BYTES: Final = 65536
MAX_ENTRIES: Final = 10_000

EVERY_CALLER: Final[tuple[Mapping[str, Any], ...]] = ({},)
PERSONS: Final[tuple[Mapping[str, Any], ...]] = ({"actors": ["user"]},)
_READ: Final = dict.fromkeys(ZONES[:3], EVERY_CALLER) | {LEGACY: PERSONS}
_PROPOSE: Final = {**dict.fromkeys(ZONES[:2], PERSONS), "observation": EVERY_CALLER, LEGACY: ()}


def entry_of(section: Object) -> dict[str, Any]:
    """Return the complete memory entry of a charter for the section ``memory:`` (*section*)."""
    zones = section.get("zones", {})
    return {
        "zones": {
            zone: {
                "read": _as_list(zones.get(zone, {}).get("read", _READ[zone])),
                "propose": _as_list(zones.get(zone, {}).get("propose", _PROPOSE[zone])),
            }
            for zone in ZONES
        },
        "verified_by": list(section.get("verified_by", ())),
        "keys": {glob: {**body} for glob, body in section.get("keys", {}).items()},
        "never": list(section.get("never", ())),
        "max_bytes": section.get("max_bytes", MAX_BYTES),
        "max_entries": section.get("max_entries", MAX_ENTRIES),
    }


def zone_test(document: Object, ability: Object) -> Outside | None:
    """Return the zone test for an *ability* of the charter *document*; ``None`` for kinds without zones."""
    access = KINDS[ability["kind"]].tools.get(ability["plugin"][1])
    if access is None:
        return None
    tests = {
        zone: [_test(who) for who in _may(said, zone, access)] for zone, said in _memory_of(document)["zones"].items()
    }
    verb = {"read": "read", "propose": "propose to"}.get(access, "retract from")

    def test(caller: Caller, args: Object) -> str | None:
        zone = args["zone"]
        if any(fits(caller) for fits in tests.get(zone, ())):
            return None
        return f"zone {zone!r}, which {_describe_caller(caller)} may not {verb}"

    return test


def _may(rights: Object, zone: str, access: str) -> Any:
    """Return the callers with access to a zone.

    A caller who may propose may also retract, but only persons retract legacy entries.
    """
    return PERSONS if access == "retract" and zone == LEGACY else rights["read" if access == "read" else "propose"]


def _memory_of(document: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document.get("memory") or entry_of({})
    return found


def _as_list(who: Any) -> list[dict[str, Any]]:
    return [dict(each) for each in who]


def _test(who: Object) -> Callable[[Caller], bool]:
    """Return a test whether a caller matches *who*: all of its keys hold."""
    principals = glob_test(who["principals"]) if "principals" in who else None
    roles, skills, actors = (frozenset(who[key]) if key in who else None for key in ("roles", "skills", "actors"))

    def test(caller: Caller) -> bool:
        return (
            (actors is None or caller.actor in actors)
            and (principals is None or principals(caller.principal.id))
            and (roles is None or caller.role in roles or not roles.isdisjoint(caller.principal.roles))
            and (skills is None or caller.skill in skills)
        )

    return test


def _describe_caller(caller: Caller) -> str:
    parts = [f"{caller.actor} {caller.principal.id}"]
    parts += [f"as {caller.role}"] if caller.role else []
    parts += [f"in skill {caller.skill}"] if caller.skill else []
    return " ".join(parts)
