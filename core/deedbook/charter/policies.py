"""Lint the policies of a charter against its abilities, by the checks of their kinds (`PolicyChecks`)."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from deedbook.contract import Object, PolicyProblem, PolicyTarget
from deedbook.format.errors import BindingError
from deedbook.plugins.policy_kinds import Kinds
from deedbook.policy.fitting import Fitting, PolicyNote, facts_of, find_unknown_names, rule_place
from deedbook.workspace.declarations import Origin, PolicySource

Entry: TypeAlias = Mapping[str, Any]


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
    targets, names = Targets.of(document), [each for each in sorted(document["policies"]) if policy in (None, each)]
    unknown = [each for each in find_unknown_names(document, packed=True) if each.policy in names]
    reported = {(each.policy, each.rule) for each in unknown}
    found = [
        note
        for name in names
        for note, problem in _notes(name, document["policies"][name], targets, kinds, sources or {})
        if problem.pointer or problem.other_rules or (name, problem.rule) not in reported
    ]  # without rules that are about no ability because of the unknown name
    return sorted([*unknown, *found], key=lambda note: (note.policy, note.rule is None, note.rule))


def _notes(
    name: str, entry: Entry, targets: Targets, kinds: Kinds, sources: Mapping[str, PolicySource]
) -> Iterator[tuple[PolicyNote, PolicyProblem]]:
    kind = kinds(entry["plugin"][1])
    for each in kind.lint(entry["settings"], targets.of_policy(name, entry)) if kind else ():
        places = [rule_place(entry, rule) for rule in each.other_rules]
        why = f"{each.message} ({', '.join(places)})" if places else each.message
        exact = place_of(each, sources[name].origin) if name in sources and each.pointer else None
        yield PolicyNote(name, each.rule, exact or rule_place(entry, each.rule), why), each
