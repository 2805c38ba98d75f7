"""What a prompt may be about: abilities and knowledge, ranked, as hints for the flow or the person that acts on it."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final

from deedbook.contract import Decision, Failed, GateSpec, Host, Object, Principal, RankedRoute, allow, hookimpl

LIMIT: Final = 5
"""How many abilities, and how many sections, are hinted at where YAML says nothing."""

_SETTINGS: Final[Object] = {
    "type": "object",
    "properties": {
        "limit": {
            "description": "At most so many abilities, and so many sections of documents; 5, if left out",
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
        },
        "intent": {
            "description": "Whether to say which declared intent the prompt has, if one fits best; true, if left out",
            "type": "boolean",
        },
        "environment": {
            "description": "The environment of this workspace: one of environments",
            "type": "string",
            "minLength": 1,
        },
        "environments": {
            "description": "Globs of abilities by environment; these abilities are hinted at only there",
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 1000},
        },
    },
    "dependentRequired": {"environment": ["environments"], "environments": ["environment"]},
    "additionalProperties": False,
}


class Routing:
    """Hints at abilities and at sections of routing documents; it allows every prompt, and decides nothing."""

    spec: ClassVar[GateSpec] = GateSpec(settings=_SETTINGS, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:
        """Take the catalogue, which is indexed now; raises `Failed` if there is none, or for an unknown environment."""
        self._routes = host.catalogue()
        self._elsewhere = _find_elsewhere([route.id for route in self._routes.abilities], settings)
        self._limit: int = settings.get("limit", LIMIT)
        self._intent: bool = settings.get("intent", True)

    @hookimpl
    def user_prompt_submit(self, prompt: str, principal: Principal, session: str, now: str, facts: Object) -> Decision:  # noqa: ARG002 - the event's signature
        """Allow, with hints where something fits the prompt."""
        most = max(self._limit, 2) + len(self._elsewhere)
        ranked, knowledge = self._routes.rank(prompt, principal, most)
        abilities = [each for each in ranked if each.route.id not in self._elsewhere]
        if not abilities and not knowledge:
            return allow()
        hint = {
            "abilities": [_route_to_json(each) for each in abilities[: self._limit]],
            "knowledge": [_route_to_json(each) | self._leads(each) for each in knowledge[: self._limit]],
            "choice": abilities[0].route.id if abilities else None,
        }
        intent = _intent(abilities) if self._intent else ""
        return Decision("allow", signals={"routing_hint": hint} | ({"normalized_intent": intent} if intent else {}))

    def _leads(self, each: RankedRoute) -> dict[str, Any]:
        """Return what a section of a document has beside its place: what to read, and what to use."""
        route = each.route
        abilities = [name for name in route.abilities if name not in self._elsewhere]
        return {"title": route.title, "abilities": abilities, "links": list(route.links)}


def _find_elsewhere(abilities: Sequence[str], settings: Object) -> frozenset[str]:
    """Return the *abilities* that belong to other environments only; raises `Failed` for an unknown environment."""
    environments: dict[str, list[str]] = settings.get("environments", {})
    here = settings.get("environment")
    if here is None:
        return frozenset()
    if here not in environments:
        known = ", ".join(sorted(environments)) or "none"
        raise Failed("BINDING_INVALID", f"environment {here!r} is not one of environments: {known}")
    places = {name: {place for place, globs in environments.items() if _fits(name, globs)} for name in abilities}
    return frozenset(name for name, found in places.items() if found and here not in found)


def _fits(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _route_to_json(each: RankedRoute) -> dict[str, Any]:
    return {"id": each.route.id, "by": each.by, "words": each.words, "score": each.score, "reason": each.reason}


def _intent(abilities: Sequence[RankedRoute]) -> str:
    """Return the declared words that the prompt says, if they speak for one ability more than for any other."""
    if not abilities or abilities[0].by == "text":
        return ""
    first = abilities[0]
    tied = any((each.by, each.words) == (first.by, first.words) for each in abilities[1:])
    return "" if tied else first.trigger
