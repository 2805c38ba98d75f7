"""Where a prompt may lead: the abilities of a charter and the sections of its routing documents, ranked; pure.

Nothing here decides anything. A ranking is a hint: what may be used is said by scopes, policies and hooks, and they are
asked about every call, whoever suggested it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Any, Final

import attrs

from deedbook.contract import Principal, Ranked, Route

from .bm25 import UNIT, Index, words
from .fit import Fit, fit, plain, stands

MOST: Final = 32_768
"""How many characters of a prompt are looked at."""
AGENT: Final = "agent:"
"""How the principals begin that may not use everything: those of clients."""

_TOLD: Final = 5
_ORDER: Final = ("id", "trigger", "text")
_SAYS: Final = "the prompt"
_JOINED: Final = "-/"


def told(document: Mapping[str, Any], scopes: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Return, as JSON, what `CharterRoutes` are made of: the part of a charter's *document* that prompts can lead to.

    *scopes* names, by the principal of each client, the abilities that are there for it.
    """
    abilities = {
        name: {part: entry[part] for part in ("summary", "intents", "scopes")}
        for name, entry in document["abilities"].items()
        if entry["kind"] in ("tool", "flow")
    }
    guides = {name: dict(entry) for name, entry in document.get("guides", {}).items()}
    return {"abilities": abilities, "guides": guides, "scopes": {who: sorted(names) for who, names in scopes.items()}}


class CharterRoutes:
    """Implements `contracts.Routes`; the index is made here, once, and asked as often as there are prompts."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        lending, knowledge = _guides(said["guides"], said["abilities"])
        self.knowledge: Sequence[Route] = knowledge
        self.abilities: Sequence[Route] = tuple(
            _ability(name, entry, lending.get(name, ())) for name, entry in sorted(said["abilities"].items())
        )
        self._scopes = {who: frozenset(names) for who, names in said["scopes"].items()}
        self._abilities, self._knowledge = _Ranking(self.abilities), _Ranking(self.knowledge)

    def rank(self, prompt: str, principal: Principal, limit: int) -> tuple[list[Ranked], list[Ranked]]:
        """Return the best abilities and the best sections, at most *limit* of each."""
        text = plain(prompt[:MOST])
        within = self._within(principal)
        found = self._knowledge.best(text, limit, None)
        if within is not None:
            found = [attrs.evolve(each, route=_narrowed(each.route, within)) for each in found]
        return self._abilities.best(text, limit, within), found

    def _within(self, principal: Principal) -> frozenset[str] | None:
        """Return the abilities that are there for *principal*, as far as a name can say; ``None``: all."""
        return self._scopes.get(principal.id, frozenset()) if principal.id.startswith(AGENT) else None


class _Ranking:
    """Routes of one sort, in the order of their ids, ready to be ranked."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._index = Index([[*_told(route)] for route in routes])
        self._phrases: dict[str, list[int]] = defaultdict(list)
        for number, route in enumerate(routes):
            for key in {self._key(phrase) for phrase in (route.id, *route.triggers)}:
                self._phrases[key].append(number)

    def best(self, text: str, limit: int, within: frozenset[str] | None) -> list[Ranked]:
        said = words(text)
        known = self._index.known(said)
        scores = self._index.scores(known)
        fits = {number: made for number in self._candidates(said) if (made := self._fit(text, number))}
        if within is not None:
            fits = {number: made for number, made in fits.items() if self._routes[number].id in within}
            scores = {number: score for number, score in scores.items() if self._routes[number].id in within}
        numbers = {*fits, *_highest(scores, limit)}
        best = nsmallest(limit, ((*_place(fits.get(n), scores.get(n, 0)), n) for n in numbers))
        return [self._ranked(text, n, fits.get(n), scores.get(n, 0) / UNIT, known) for *_, n in best]

    def _key(self, phrase: str) -> str:
        """Return the word of a phrase that tells most: only where it stands can the phrase."""
        return max(words(phrase), key=lambda word: (self._index.rarity(word), word), default="")

    def _candidates(self, said: Iterable[str]) -> set[int]:
        return {number for word in set(said) for number in self._phrases.get(word, ())}

    def _fit(self, text: str, number: int) -> Fit | None:
        route = self._routes[number]
        return fit(text, route.id, route.triggers, says=_SAYS, joined=_JOINED)

    def _ranked(self, text: str, number: int, made: Fit | None, score: float, known: Sequence[str]) -> Ranked:
        route = self._routes[number]
        if made is None:
            own = set(_told(route))
            shared = ", ".join(f'"{word}"' for word in [word for word in known if word in own][:_TOLD])
            return Ranked(route, "text", 0, score, f"{_SAYS} shares {shared} with it")
        apart = [each for each in made.triggers if stands(text, plain(each), joined="-")]
        phrase = min(apart, key=lambda each: (-len(each.split()), each), default="")
        by = "id" if made.named else "trigger"
        return Ranked(route, by, made.words, score, made.reason, phrase)


def _highest(scores: Mapping[int, int], limit: int) -> set[int]:
    """Return the first *limit*, as far as text goes; of equal ones those that come first."""
    least = min(nlargest(limit, scores.values()), default=0)
    over = {number for number, score in scores.items() if score > least}
    return over | {*nsmallest(limit - len(over), (number for number, score in scores.items() if score == least))}


def _place(made: Fit | None, score: int) -> tuple[int, int, int]:
    """Return where a route stands: named first, then the more trigger words, then the better text."""
    return (2 if made is None else int(not made.named), -made.words if made else 0, -score)


def _told(route: Route) -> Iterator[str]:
    """Yield the words that speak for a route."""
    for text in (route.id.rpartition("#")[2], route.title, *route.triggers, *sorted(route.scopes), route.text):
        yield from words(text)


def _ability(name: str, entry: Mapping[str, Any], guides: Iterable[Mapping[str, Any]]) -> Route:
    """Return an ability with what the sections of an ``ABILITY.md`` lend it that name it."""
    lent = list(guides)
    return Route(
        id=name,
        title=entry["summary"],
        text="\n\n".join(f"{each['title']}\n{each['text']}" for each in lent),
        triggers=tuple(dict.fromkeys([*entry["intents"], *(word for each in lent for word in each["triggers"])])),
        scopes=frozenset(entry["scopes"]),
    )


def _guides(
    guides: Mapping[str, Any], abilities: Mapping[str, Any]
) -> tuple[Mapping[str, list[Mapping[str, Any]]], tuple[Route, ...]]:
    """Return the sections that lend their words to abilities, by ability; and those that are knowledge."""
    lending: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    knowledge = []
    for name, entry in sorted(guides.items()):
        named = [each for each in entry["abilities"] if each in abilities]
        for each in named if entry["lends"] else ():
            lending[each].append(entry)
        if not (entry["lends"] and named):
            knowledge.append(
                Route(
                    id=name,
                    title=entry["title"],
                    text=entry["text"],
                    triggers=tuple(dict.fromkeys((entry["title"], *entry["triggers"]))),
                    abilities=tuple(named),
                    links=tuple(entry["links"]),
                )
            )
    return lending, tuple(knowledge)


def _narrowed(route: Route, within: frozenset[str]) -> Route:
    return attrs.evolve(route, abilities=tuple(name for name in route.abilities if name in within))
