"""Rank the abilities of a charter and the sections of its routing documents for a prompt; pure.

A ranking is only a hint. Scopes, policies and hooks decide about every call.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Any, Final

import attrs

from deedbook.contract import Principal, RankedRoute, Route
from deedbook.policy.fit import Fit, contains_words, fit, plain

from .bm25 import UNIT, Index, words

MOST: Final = 32_768
"""How many characters of a prompt are used."""
AGENT: Final = "agent:"
"""The prefix of principals that may not use everything: clients."""

_TOLD: Final = 5
_SAYS: Final = "the prompt"
_JOINED: Final = "-/"


class CharterRoutes:
    """Implements `contracts.Routes`; the index is built once."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        lending, knowledge = _guides(said["guides"], said["abilities"])
        self.knowledge: Sequence[Route] = knowledge
        self.abilities: Sequence[Route] = tuple(
            _ability(name, entry, lending.get(name, ())) for name, entry in sorted(said["abilities"].items())
        )
        self._scopes = {who: frozenset(names) for who, names in said["scopes"].items()}
        self._abilities, self._knowledge = _Ranking(self.abilities), _Ranking(self.knowledge)

    def rank(self, prompt: str, principal: Principal, limit: int) -> tuple[list[RankedRoute], list[RankedRoute]]:
        """Return the best abilities and the best sections, at most *limit* of each."""
        text = plain(prompt[:MOST])
        within = self._within(principal)
        found = self._knowledge.best(text, limit, None)
        if within is not None:
            found = [attrs.evolve(each, route=_narrow(each.route, within)) for each in found]
        return self._abilities.best(text, limit, within), found

    def _within(self, principal: Principal) -> frozenset[str] | None:
        """Return the abilities available to *principal*, as far as its name shows; ``None``: all."""
        return self._scopes.get(principal.id, frozenset()) if principal.id.startswith(AGENT) else None


class _Ranking:
    """Routes of one sort, in the order of their ids, with an index."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._index = Index([[*_route_words(route)] for route in routes])
        self._phrases: dict[str, list[int]] = defaultdict(list)
        for number, route in enumerate(routes):
            for key in {self._key(phrase) for phrase in (route.id, *route.triggers)}:
                self._phrases[key].append(number)

    def best(self, text: str, limit: int, within: frozenset[str] | None) -> list[RankedRoute]:
        said = words(text)
        known = self._index.known_words(said)
        scores = self._index.scores(known)
        fits = {number: made for number in self._candidates(said) if (made := self._fit(text, number))}
        if within is not None:
            fits = {number: made for number, made in fits.items() if self._routes[number].id in within}
            scores = {number: score for number, score in scores.items() if self._routes[number].id in within}
        numbers = {*fits, *_highest(scores, limit)}
        best = nsmallest(limit, ((*_place(fits.get(n), scores.get(n, 0)), n) for n in numbers))
        return [self._make_ranked_route(text, n, fits.get(n), scores.get(n, 0) / UNIT, known) for *_, n in best]

    def _key(self, phrase: str) -> str:
        """Return the rarest word of a phrase: a text without it cannot contain the phrase."""
        return max(words(phrase), key=lambda word: (self._index.rarity(word), word), default="")

    def _candidates(self, said: Iterable[str]) -> set[int]:
        return {number for word in set(said) for number in self._phrases.get(word, ())}

    def _fit(self, text: str, number: int) -> Fit | None:
        route = self._routes[number]
        return fit(text, route.id, route.triggers, says=_SAYS, joined=_JOINED)

    def _make_ranked_route(
        self, text: str, number: int, made: Fit | None, score: float, known: Sequence[str]
    ) -> RankedRoute:
        route = self._routes[number]
        if made is None:
            own = set(_route_words(route))
            shared = ", ".join(f'"{word}"' for word in [word for word in known if word in own][:_TOLD])
            return RankedRoute(route, "text", 0, score, f"{_SAYS} shares {shared} with it")
        apart = [each for each in made.triggers if contains_words(text, plain(each), joined="-")]
        phrase = min(apart, key=lambda each: (-len(each.split()), each), default="")
        by = "id" if made.named else "trigger"
        return RankedRoute(route, by, made.words, score, made.reason, phrase)


def _highest(scores: Mapping[int, int], limit: int) -> set[int]:
    """Return the numbers of the *limit* best scores; of equal ones the first."""
    least = min(nlargest(limit, scores.values()), default=0)
    over = {number for number, score in scores.items() if score > least}
    return over | {*nsmallest(limit - len(over), (number for number, score in scores.items() if score == least))}


def _place(made: Fit | None, score: int) -> tuple[int, int, int]:
    """Return the sort key of a route: named first, then more trigger words, then the better text."""
    return (2 if made is None else int(not made.named), -made.words if made else 0, -score)


def _route_words(route: Route) -> Iterator[str]:
    """Yield the searchable words of a route."""
    for text in (route.id.rpartition("#")[2], route.title, *route.triggers, *sorted(route.scopes), route.text):
        yield from words(text)


def _ability(name: str, entry: Mapping[str, Any], guides: Iterable[Mapping[str, Any]]) -> Route:
    """Return an ability with the sections of an ``ABILITY.md`` that name it."""
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
    """Return the sections that lend their words to abilities, by ability, and the other sections."""
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


def _narrow(route: Route, within: frozenset[str]) -> Route:
    return attrs.evolve(route, abilities=tuple(name for name in route.abilities if name in within))
