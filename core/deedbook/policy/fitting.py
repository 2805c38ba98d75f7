"""Which abilities a hook or policy of the charter applies to.

A hook or a policy that an ability names runs at its every call. Others run where their match holds. A policy without a
match applies to all tools and flows if it is in ``deedbook.yaml``, and to nothing if it is a file of its own.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from .charter import lists_rules
from .conditions import as_list
from .kinds import DEFAULT_KINDS
from .match import AbilityFacts, Match


@attrs.frozen(eq=False)
class Fitting:
    """A hook or a policy: its *name*, its entry in the charter, and its match, if it has one."""

    name: str
    entry: Mapping[str, Any]
    match: Match | None

    @classmethod
    def of(cls, name: str, entry: Mapping[str, Any]) -> "Fitting":
        """Compile the match of a hook or a policy; raises `BindingError`."""
        # not compiled as a match that allows: an unneeded gate can only make an answer stricter
        body = entry["match"]
        return cls(name, entry, None if body is None else Match.compile(body, entry["place"], at=("match",)))

    def fits(self, facts: AbilityFacts, named: list[str]) -> bool:
        """Return whether it applies to an ability: *named* by it, matching it, or a policy for all in deedbook.yaml.

        A policy whose kind judges no calls applies to none.
        """
        if not judges_calls(self.entry):
            return False
        if self.name in named:
            return True
        if self.match is not None:
            return self.match.could_match(facts)
        return bool(self.entry.get("inline")) and facts.kind in DEFAULT_KINDS


def judges_calls(entry: Mapping[str, Any]) -> bool:
    """Return whether a hook or policy of the charter is asked about calls; some policies judge only subjects."""
    return entry.get("calls", True) is True


def fittings(document: Mapping[str, Any], section: str) -> list[Fitting]:
    """Return the ``hooks`` or ``policies`` of a charter."""
    return [Fitting.of(name, entry) for name, entry in document[section].items()]


def facts_of(name: str, entry: Mapping[str, Any]) -> AbilityFacts:
    """Return the facts of an ability of the charter that a match may use."""
    return AbilityFacts(
        id=name,
        kind=entry["kind"],
        effects=entry["effects"],
        tags=frozenset(entry["tags"]),
        scopes=frozenset(entry["scopes"]),
        paths=tuple(entry["paths"]),
    )


def tags_of(match: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the tags that a match names; an invalid match names none, and the compiler reports it."""
    said = as_list(match.get("tags", ())) if isinstance(match, Mapping) else ()
    return frozenset(each for each in said if isinstance(each, str))


def named_tags(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return all tags that a policy names, in its match or in that of a rule."""
    return tags_of(entry["match"]).union(*rule_tags(entry))


def rule_tags(entry: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """Return the tags that each rule of a policy names; none if the policy is not a list of rules."""
    if not lists_rules(entry):
        return ()
    return tuple(tags_of(rule.get("match")) for rule in entry["settings"]["rules"])
