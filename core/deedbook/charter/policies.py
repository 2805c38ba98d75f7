"""Lint the policies of a charter against its abilities, by the checks of their kinds (`PolicyChecks`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.format.errors import BindingError
from deedbook.format.lint import suggest
from deedbook.plugins.policy_kinds import Kinds
from deedbook.policy.fitting import Fitting, facts_of
from deedbook.workspace.declarations import Origin, PolicySource

Entry: TypeAlias = Mapping[str, Any]


@attrs.frozen
class PolicyNote:
    """A doubtful part of a policy: *rule* is the index of a rule, *place* ``file:line[:column]``, *why* the reason.

    *why* continues "rule 1 of policy NAME". *guards_nothing*: the rule denies or asks but never matches, because it
    names an ability that does not exist; the calls it should guard reach the next rule.
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


class Targets:
    """The abilities of a charter as policy kinds see them; *schemas* are the documents by digest."""

    def __init__(self, abilities: Mapping[str, Entry | None], schemas: Mapping[str, Object]) -> None:
        self._abilities = [
            (facts_of(name, entry), entry, _target(name, entry, schemas))
            for name, entry in sorted(abilities.items())
            if entry
        ]

    @classmethod
    def of(cls, document: Entry) -> "Targets":
        """Return the targets of a charter's *document*."""
        return cls(document["abilities"], document["schemas"])

    def of_policy(self, name: str, entry: Entry) -> tuple[PolicyTarget, ...]:
        """Return the abilities that a policy applies to; none where its match is invalid."""
        try:
            fitting = Fitting.of(name, entry)
        except BindingError:
            return ()
        return tuple(target for facts, ability, target in self._abilities if fitting.fits(facts, ability["policies"]))


def _target(name: str, entry: Entry, schemas: Mapping[str, Object]) -> PolicyTarget:
    # the completion contract checks a request to a model, not the plugin's own schema
    named = () if entry["kind"] == "model" else (entry["takes"], entry["schema_in"])
    return PolicyTarget(
        id=name,
        kind=entry["kind"],
        effects=entry["effects"],
        tags=frozenset(entry["tags"]),
        scopes=frozenset(entry["scopes"]),
        paths=tuple(entry["paths"]),
        takes=tuple(schemas[digest] for digest in named if digest in schemas),
    )


def place_of(problem: PolicyProblem, origin: Origin) -> str:
    """Return the place of a problem in the YAML, as ``file:line:column``."""
    if problem.at is not None:
        return origin.within(problem.pointer, problem.at)
    return origin.place(problem.pointer, key=True)


def lint_policies(
    document: Entry, kinds: Kinds, sources: Mapping[str, PolicySource] | None = None, *, policy: str | None = None
) -> list[PolicyNote]:
    """Return notes on the policies of a charter, or on one *policy*, as their kinds report them.

    *sources* add the column to each place. Raises `BindingError` where a kind fails.
    """
    targets = Targets.of(document)
    return [
        note
        for name, entry in sorted(document["policies"].items())
        if policy in (None, name)
        for note in _notes(name, entry, targets, kinds, sources.get(name) if sources else None, document["abilities"])
    ]


def find_ineffective_rules(document: Entry, kinds: Kinds) -> list[PolicyNote]:
    """Return the notes on rules of own policies that guard nothing. A place in a pack has the form ``label: path``."""
    return [each for each in lint_policies(document, kinds) if each.guards_nothing and ": " not in each.place]


def _notes(
    name: str, entry: Entry, targets: Targets, kinds: Kinds, source: PolicySource | None, abilities: Entry
) -> Iterator[PolicyNote]:
    kind = kinds(entry["plugin"][1])
    for each in kind.lint(entry["settings"], targets.of_policy(name, entry)) if kind else ():
        places = [_rule_place(entry, rule) for rule in each.other_rules]
        why = f"{each.message} ({', '.join(places)})" if places else each.message
        exact = place_of(each, source.origin) if source and each.pointer else _rule_place(entry, each.rule)
        nowhere = [ability for ability in each.names if ability not in abilities]
        if nowhere:
            why = f"guards nothing: there is no ability {nowhere[0]!r}{suggest(nowhere[0], abilities)}"
        yield PolicyNote(name, each.rule, exact, why, guards_nothing=bool(nowhere))


def _rule_place(entry: Entry, rule: int | None) -> str:
    places: Sequence[str] = entry["rules"]
    found: str = places[rule] if rule is not None and rule in range(len(places)) else entry["place"]
    return found
