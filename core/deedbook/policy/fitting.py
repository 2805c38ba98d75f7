"""Where hooks and policies fit: the one place that says which abilities a gate of the charter is about.

A hook or a policy that an ability names is asked at its every call. Others are asked where their match holds; a policy
without one fits all tools and flows if it stands in ``deedbook.yaml``, and nothing if it is a file of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from deedbook.contract.lifecycle import EVENTS

from .charter_format import lists_rules
from .conditions import listed
from .match import DEFAULT_KINDS, AbilityFacts, Match


@attrs.frozen(eq=False)
class Fitting:
    """A hook or a policy: its *name*, what the charter says of it, and its match, if it has one."""

    name: str
    entry: Mapping[str, Any]
    match: Match | None

    @classmethod
    def of(cls, name: str, entry: Mapping[str, Any]) -> "Fitting":
        """Compile the match of a hook or a policy; raises `BindingError`."""
        # not compiled as a match that allows: who is asked needlessly can only make an answer stricter
        body = entry["match"]
        return cls(name, entry, None if body is None else Match.compile(body, entry["place"], at=("match",)))

    def fits(self, facts: AbilityFacts, named: list[str]) -> bool:
        """Say whether it can fit an ability: *named* by it, matching it, or for all if it stands in deedbook.yaml."""
        if self.name in named:
            return True
        if self.match is not None:
            return self.match.could_match(facts)
        return bool(self.entry.get("inline")) and facts.kind in DEFAULT_KINDS


def fittings(document: Mapping[str, Any], section: str) -> list[Fitting]:
    """Return the ``hooks`` or ``policies`` of a charter."""
    return [Fitting.of(name, entry) for name, entry in document[section].items()]


def facts_of(name: str, entry: Mapping[str, Any]) -> AbilityFacts:
    """Return what a match may ask of an ability of the charter."""
    return AbilityFacts(
        id=name,
        kind=entry["kind"],
        effects=entry["effects"],
        tags=frozenset(entry["tags"]),
        scopes=frozenset(entry["scopes"]),
        paths=tuple(entry["paths"]),
    )


def tags_of(match: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the tags that a match names; a value that is no match names none, and the compiler reports it."""
    said = listed(match.get("tags", ())) if isinstance(match, Mapping) else ()
    return frozenset(each for each in said if isinstance(each, str))


def rule_tags(entry: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """Return the tags that each rule names of a policy that is a list of rules; of any other policy none."""
    if not lists_rules(entry):
        return ()
    return tuple(tags_of(rule.get("match")) for rule in entry["settings"]["rules"])


def unguarded(document: Mapping[str, Any]) -> list[str]:
    """Return the tools and flows of a charter that no policy can fit: scope, schema and hooks alone decide on them."""
    policies = fittings(document, "policies")
    return [
        facts.id
        for facts, entry in _abilities(document)
        if facts.kind not in ("model", "memory") and not any(fit.fits(facts, entry["policies"]) for fit in policies)
    ]


def covers(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return for every policy of a charter the abilities that it is asked about."""
    abilities = list(_abilities(document))
    return {
        fit.name: [facts.id for facts, entry in abilities if fit.fits(facts, entry["policies"])]
        for fit in fittings(document, "policies")
    }


def unasked(document: Mapping[str, Any]) -> list[str]:
    """Return the hooks of calls, and the policies, that fit no ability: nobody will ever ask them."""
    abilities = list(_abilities(document))
    hooks = [fit for fit in fittings(document, "hooks") if EVENTS[fit.entry["event"]].call]
    named = [(f"hook {fit.name}", fit, _hooked) for fit in hooks]
    named += [(f"policy {fit.name}", fit, _ruled) for fit in fittings(document, "policies")]
    return [what for what, fit, of in named if not any(fit.fits(facts, of(entry)) for facts, entry in abilities)]


def _abilities(document: Mapping[str, Any]) -> Iterator[tuple[AbilityFacts, Mapping[str, Any]]]:
    return ((facts_of(name, entry), entry) for name, entry in sorted(document["abilities"].items()))


def _hooked(entry: Mapping[str, Any]) -> list[str]:
    return [name for names in entry["hooks"].values() for name in names]


def _ruled(entry: Mapping[str, Any]) -> list[str]:
    named: list[str] = entry["policies"]
    return named
