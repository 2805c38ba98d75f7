"""What a prompt may be about: abilities and knowledge, ranked, as hints for the flow or the person that acts on it."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from deedbook.contract import Decision, GateSpec, Host, Object, Principal, RankedRoute, allow, hookimpl

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
    },
    "additionalProperties": False,
}


class Routing:
    """Hints at abilities and at sections of routing documents; it allows every prompt, and decides nothing."""

    spec: ClassVar[GateSpec] = GateSpec(settings=_SETTINGS, pure=True)

    def __init__(self, settings: Object, host: Host) -> None:
        """Take the catalogue, which is indexed now; raises `Failed` where there is none."""
        self._routes = host.catalogue()
        self._limit: int = settings.get("limit", LIMIT)
        self._intent: bool = settings.get("intent", True)

    @hookimpl
    def user_prompt_submit(self, prompt: str, principal: Principal, session: str, now: str, facts: Object) -> Decision:  # noqa: ARG002 - the event's signature
        """Allow, with hints where something fits the prompt."""
        abilities, knowledge = self._routes.rank(prompt, principal, max(self._limit, 2))
        if not abilities and not knowledge:
            return allow()
        hint = {
            "abilities": [_route_to_json(each) for each in abilities[: self._limit]],
            "knowledge": [_route_to_json(each) | _leads(each) for each in knowledge[: self._limit]],
            "choice": abilities[0].route.id if abilities else None,
        }
        intent = _intent(abilities) if self._intent else ""
        return Decision("allow", signals={"routing_hint": hint} | ({"normalized_intent": intent} if intent else {}))


def _route_to_json(each: RankedRoute) -> dict[str, Any]:
    return {"id": each.route.id, "by": each.by, "words": each.words, "score": each.score, "reason": each.reason}


def _leads(each: RankedRoute) -> dict[str, Any]:
    """Return what a section of a document has beside its place: what to read, and what to use."""
    route = each.route
    return {"title": route.title, "abilities": list(route.abilities), "links": list(route.links)}


def _intent(abilities: Sequence[RankedRoute]) -> str:
    """Return the declared words that the prompt says, if they speak for one ability more than for any other."""
    if not abilities or abilities[0].by == "text":
        return ""
    first = abilities[0]
    tied = any((each.by, each.words) == (first.by, first.words) for each in abilities[1:])
    return "" if tied else first.trigger
