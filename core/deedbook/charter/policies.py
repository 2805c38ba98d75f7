"""The policies of a charter, held against its abilities by what their kinds say (`PolicyChecks`)."""

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
class Note:
    """Something doubtful about a policy: *rule* is the index of a rule, *place* ``file:line[:column]``, *why* in words.

    *why* goes on from "rule 1 of policy NAME". *unguarding*: the rule was meant to deny or to ask and can never hold,
    since it names an ability that exists nowhere; what it should guard goes on to the next rule.
    """

    policy: str
    rule: int | None
    place: str
    why: str
    unguarding: bool = False

    def __str__(self) -> str:
        return f"{self.about} of policy {self.policy} {self.why}" if self.about else f"policy {self.policy} {self.why}"

    @property
    def about(self) -> str:
        """The rule in words, such as ``rule 1``; empty where the note is about the whole policy."""
        return "" if self.rule is None else f"rule {self.rule + 1}"


class Targets:
    """The abilities of a charter as the kinds of policies see them; *schemas* are the documents by digest."""

    def __init__(self, abilities: Mapping[str, Entry | None], schemas: Mapping[str, Object]) -> None:
        self._abilities = [
            (facts_of(name, entry), entry, _target(name, entry, schemas))
            for name, entry in sorted(abilities.items())
            if entry
        ]

    @classmethod
    def of(cls, document: Entry) -> "Targets":
        """Return those of a charter's *document*."""
        return cls(document["abilities"], document["schemas"])

    def of_policy(self, name: str, entry: Entry) -> tuple[PolicyTarget, ...]:
        """Return the abilities that a policy is asked about; none where its match is no match."""
        try:
            fitting = Fitting.of(name, entry)
        except BindingError:
            return ()
        return tuple(target for facts, ability, target in self._abilities if fitting.fits(facts, ability["policies"]))


def _target(name: str, entry: Entry, schemas: Mapping[str, Object]) -> PolicyTarget:
    # a request to a model is bound by the completion contract, which is not the plugin's own schema
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
    """Return where a problem stands in the YAML, as ``file:line:column``."""
    if problem.at is not None:
        return origin.within(problem.pointer, problem.at)
    return origin.place(problem.pointer, key=True)


def notes(
    document: Entry, kinds: Kinds, sources: Mapping[str, PolicySource] | None = None, *, policy: str | None = None
) -> list[Note]:
    """Return what is doubtful about the policies of a charter, or about one *policy*, as their kinds say.

    *sources* give the column of each place. Raises `BindingError` where a kind fails.
    """
    targets = Targets.of(document)
    return [
        note
        for name, entry in sorted(document["policies"].items())
        if policy in (None, name)
        for note in _notes(name, entry, targets, kinds, sources.get(name) if sources else None, document["abilities"])
    ]


def doubtful(document: Entry, kinds: Kinds, sources: Mapping[str, PolicySource]) -> list[Note]:
    """Return the notes on a workspace's own policies; a pack's may be for other workspaces."""
    found = notes(document, kinds, sources)
    return [each for each in found if each.policy not in sources or not sources[each.policy].origin.packed]


def unguarding(document: Entry, kinds: Kinds) -> list[Note]:
    """Return the notes on rules of a workspace's own policies that guard nothing; a pack's place is ``label: path``."""
    return [each for each in notes(document, kinds) if each.unguarding and ": " not in each.place]


def reachable(document: Entry, kinds: Kinds, policy: str) -> frozenset[int | None] | None:
    """Return which rules of a policy can decide (``None`` among them: its default); ``None`` if its kind tells not."""
    entry = document["policies"][policy]
    kind = kinds(entry["plugin"][1])
    return kind.reachable(entry["settings"], Targets.of(document).of_policy(policy, entry)) if kind else None


def _notes(
    name: str, entry: Entry, targets: Targets, kinds: Kinds, source: PolicySource | None, abilities: Entry
) -> Iterator[Note]:
    kind = kinds(entry["plugin"][1])
    for each in kind.lint(entry["settings"], targets.of_policy(name, entry)) if kind else ():
        places = [_rule_place(entry, rule) for rule in each.other_rules]
        why = f"{each.message} ({', '.join(places)})" if places else each.message
        exact = place_of(each, source.origin) if source and each.pointer else _rule_place(entry, each.rule)
        nowhere = [ability for ability in each.names if ability not in abilities]
        if nowhere:
            why = f"guards nothing: there is no ability {nowhere[0]!r}{suggest(nowhere[0], abilities)}"
        yield Note(name, each.rule, exact, why, unguarding=bool(nowhere))


def _rule_place(entry: Entry, rule: int | None) -> str:
    places: Sequence[str] = entry["rules"]
    found: str = places[rule] if rule is not None and rule in range(len(places)) else entry["place"]
    return found
