"""Which abilities a hook or policy of the charter applies to.

A hook or a policy that an ability names runs at its every call. Others run where their match holds. A policy in
``deedbook.yaml`` without a match applies to all tools and flows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from deedbook.format.lint import suggest

from .charter import lists_rules
from .conditions import as_list, glob_test
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
    tags = as_list(match.get("tags", ())) if isinstance(match, Mapping) else ()
    return frozenset(each for each in tags if isinstance(each, str))


def named_tags(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return all tags that a policy names, in its match or in that of a rule."""
    return tags_of(entry["match"]).union(*rule_tags(entry))


def rule_tags(entry: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """Return the tags that each rule of a policy names; none if the policy is not a list of rules."""
    if not lists_rules(entry):
        return ()
    return tuple(tags_of(rule.get("match")) for rule in entry["settings"]["rules"])


# --- names of abilities that do not exist -----------------------------------------------------------------------------


@attrs.frozen
class PolicyNote:
    """A doubtful part of a policy: *rule* is the index of a rule, *place* ``file:line[:column]``, *why* the reason.

    *why* continues "rule 1 of policy NAME". *guards_nothing*: it names an ability that does not exist, and so leaves
    unguarded what was meant.
    """

    policy: str
    rule: int | None
    place: str
    why: str
    guards_nothing: bool = False

    def __str__(self) -> str:
        return f"{self.about} of policy {self.policy} {self.why}" if self.about else f"policy {self.policy} {self.why}"

    @property
    def about(self) -> str:
        """The rule as text, such as ``rule 1``; empty where the note is about the whole policy."""
        return "" if self.rule is None else f"rule {self.rule + 1}"


def find_unknown_names(
    document: Mapping[str, Any], *, packed: bool = False, patterns: bool = True
) -> Iterator[PolicyNote]:
    """Yield a note for each name of an ability in a policy's match, or in a rule that denies or asks, that none has.

    Packs may be meant for other workspaces, patterns for abilities to come; ``model/NAME`` may be in another profile.
    """
    known = document["abilities"]
    policies = [(name, each) for name, each in sorted(document["policies"].items()) if judges_calls(each)]
    for name, entry in policies if packed else [each for each in policies if ": " not in each[1]["place"]]:
        rules = enumerate(entry["settings"]["rules"] if lists_rules(entry) else ())
        guards = [(index, rule.get("match")) for index, rule in rules if rule["then"] != "allow"]
        for rule, match in [(None, entry["match"]), *guards]:
            for ability in as_list((match or {}).get("abilities", ())):
                if ability in known or ability.startswith("model/"):
                    continue
                if (is_name := "*" not in ability) or (patterns and not any(map(glob_test([ability]), known))):
                    near = suggest(ability, known) or "; correct it, or remove it"
                    why = (
                        f"does not guard {ability!r}: it {'is' if is_name else 'matches'} no ability of this workspace"
                    )
                    yield PolicyNote(name, rule, rule_place(entry, rule), why + near, guards_nothing=is_name)


def rule_place(entry: Mapping[str, Any], rule: int | None) -> str:
    """Return the place of a rule of the charter's policy *entry*, or of the policy."""
    places: Sequence[str] = entry["rules"]
    found: str = places[rule] if rule is not None and rule in range(len(places)) else entry["place"]
    return found
