"""The policies of the kind ``rules`` in a charter, held against its abilities.

What a condition sees is checked by the schemas of the abilities that its rule can be about; rules that are about no
ability, or never reached because an earlier one always decides, are found, as are those that ask for an argument which
no ability takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from deedbook.contract import Object
from deedbook.format.errors import DomainError, fault
from deedbook.format.lint import suggest, violation
from deedbook.policy.fitting import Fitting, facts_of
from deedbook.policy.match import AbilityFacts
from deedbook.workspace.declarations import PolicySource

from .rules import Rule, Rules, problems
from .vocabulary import flaws, unknown_argument

Entry: TypeAlias = Mapping[str, Any]

_KIND: Final = ["policy", "rules"]
_MODELS: Final = "model/"


@attrs.frozen
class Idle:
    """A rule that decides nothing, or too much: its *policy*, *index*, *place* (``file:line[:column]``), and why.

    *unguarding* says that it was meant to deny or to ask, and can never hold since it names an ability that exists
    nowhere: what it should guard goes on to the next rule.
    """

    policy: str
    index: int
    place: str
    why: str
    unguarding: bool = False


def unsound(
    sources: Mapping[str, PolicySource], policies: Mapping[str, Entry | None], abilities: Mapping[str, Entry | None],
    schemas: Mapping[str, Object],
) -> Iterator[DomainError]:  # fmt: skip
    """Yield what is wrong with the conditions of a workspace's rules, each at its place in the YAML.

    A rule that denies or asks only where an argument is one that no ability takes guards nothing, and is wrong, too.
    *policies* and *abilities* are what the charter will say of them, *schemas* the documents by digest. Rules that do
    not compile are left out: what is wrong with these was said when they were read.
    """
    about = [(facts_of(name, entry), entry) for name, entry in abilities.items() if entry]
    for name, entry in policies.items():
        settings = sources[name].settings
        if entry and entry["plugin"] == _KIND and _looking(settings) and not any(problems(settings)):
            fits = _fits(name, entry, about)
            for index, rule in enumerate(_made(settings).rules):
                args = _arguments(rule, fits, schemas)
                yield from _flaws(sources[name], index, rule, entry["reads"], args)
                yield from _never(sources[name], index, rule, args)


def idle(document: Entry) -> list[Idle]:
    """Return the rules of a charter that never decide."""
    about = [(facts_of(name, entry), entry) for name, entry in sorted(document["abilities"].items())]
    return [
        each
        for name, entry in sorted(document["policies"].items())
        if entry["plugin"] == _KIND
        for each in _idle(name, entry, [facts for facts, _ in _fits(name, entry, about)], [*document["abilities"]])
    ]


def doubtful(document: Entry, sources: Mapping[str, PolicySource]) -> list[Idle]:
    """Return the rules of a workspace's own policies that can never hold; a pack's may be for other workspaces."""
    found = [*idle(document), *misspelt(document, sources)]
    return [each for each in found if each.policy not in sources or not sources[each.policy].origin.packed]


def unguarding(document: Entry) -> list[Idle]:
    """Return the rules of a workspace's own policies that should deny or ask, and name an ability that is nowhere."""
    return [each for each in idle(document) if each.unguarding and not _is_packed(each.place)]


def dead_rules(document: Entry, policy: str) -> list[Idle]:
    """Return the rules of a policy that can never hold: idle ones, and those with a misspelt argument."""
    return [each for each in (*idle(document), *misspelt(document)) if each.policy == policy]


def misspelt(document: Entry, sources: Mapping[str, PolicySource] | None = None) -> list[Idle]:
    """Return the rules of a charter whose match asks for an argument that no ability takes, where that is no error.

    Such a rule allows nothing, or holds whenever the rest of its match does: the argument is always absent. *sources*
    give the column of each place.
    """
    about = [(facts_of(name, entry), entry) for name, entry in sorted(document["abilities"].items())]
    return [
        Idle(name, index, place, f"looks at no argument: {why}; {_so(body, pointer)}")
        for name, entry in sorted(document["policies"].items())
        if entry["plugin"] == _KIND and (sources is None or name in sources)
        for index, rule in enumerate(_made(entry["settings"]).rules)
        for body in [entry["settings"]["rules"][index]]
        for pointer, why in _unknown(body, _arguments(rule, _fits(name, entry, about), document["schemas"]))
        for place in [_place(sources[name], index, pointer) if sources else entry["rules"][index]]
    ]


def reached(document: Entry, policy: str) -> tuple[frozenset[int], bool]:
    """Return the indices of the rules of a policy that can decide about some ability, and whether the default can."""
    entry = document["policies"][policy]
    about = [(facts_of(name, each), each) for name, each in document["abilities"].items()]
    made = _made(entry["settings"])
    rules = {
        decision.signals.get("rule")
        for facts, _ in _fits(policy, entry, about)
        for decision in made.plan(facts).decisions()
    }
    return frozenset(rule for rule in rules if rule is not None), None in rules


def _idle(name: str, entry: Entry, about: Sequence[AbilityFacts], known: Sequence[str]) -> Iterator[Idle]:
    """Yield the rules of a policy that decide nothing *about* the abilities that it fits; *known* are all abilities."""
    made = _made(entry["settings"])
    deciding = [[decision.signals.get("rule") for decision in made.plan(facts).decisions()] for facts in about]
    for index, rule in enumerate(made.rules):
        concerned = [rules for facts, rules in zip(about, deciding, strict=True) if rule.match.could_match(facts)]
        if not concerned:
            near = _near(entry["settings"]["rules"][index], known)
            why = f"is about no ability that this policy is asked about{near}"
            nowhere = [each for each in _named(entry["settings"]["rules"][index]) if each not in known]
            guards = rule.decision.outcome != "allow"
            if nowhere and guards:
                why = f"guards nothing: there is no ability {nowhere[0]!r}{near}"
            yield Idle(name, index, entry["rules"][index], why, unguarding=bool(nowhere) and guards)
        elif not any(index in rules for rules in concerned):
            before = sorted({rules[-1] for rules in concerned if rules[-1] is not None})
            places = ", ".join(f"rule {first + 1} ({entry['rules'][first]})" for first in before)
            yield Idle(name, index, entry["rules"][index], f"is never reached: {places} always decides before it")


def _near(rule: Object, known: Sequence[str]) -> str:
    """Return which ability was probably meant by a name in the match of *rule*, in words; empty if none was."""
    return next((near for name in _listed(rule) if name not in known and (near := suggest(name, known))), "")


def _listed(rule: Object) -> Sequence[str]:
    said: str | Sequence[str] = rule["match"].get("abilities", ())
    return [said] if isinstance(said, str) else said


def _named(rule: Object) -> Iterator[str]:
    """Yield the abilities that *rule* names; no patterns, and no models, which other profiles may have."""
    yield from (name for name in _listed(rule) if "*" not in name and not name.startswith(_MODELS))


def _is_packed(place: str) -> bool:
    """Say whether a rule stands in a pack, whose place is ``label: path:line``."""
    return ": " in place


def _fits(name: str, entry: Entry, about: list[tuple[AbilityFacts, Entry]]) -> list[tuple[AbilityFacts, Entry]]:
    fitting = Fitting.of(name, entry)
    return [(facts, ability) for facts, ability in about if fitting.fits(facts, ability["policies"])]


def _made(settings: Object) -> Rules:
    host: Any = None
    return Rules(settings, host)


def _looking(settings: Object) -> bool:
    """Say whether a rule looks at arguments: by a condition, or in its match."""
    rules = settings.get("rules")
    listed = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    return any("when" in rule or _pointers(rule) for rule in listed)


def _pointers(rule: Object) -> Object:
    """Return the conditions on arguments in a rule's match, by JSON pointer."""
    body = rule.get("match")
    found = body.get("args") if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}


def _unknown(rule: Object, args: list[list[Object]]) -> Iterator[tuple[str, str]]:
    """Yield each JSON pointer in a rule's match that leads to no argument of any ability, and why."""
    for pointer in _pointers(rule):
        if why := unknown_argument(pointer, args):
            yield pointer, why


def _never(source: PolicySource, index: int, rule: Rule, args: list[list[Object]]) -> Iterator[DomainError]:
    """Yield what keeps a rule that guards from ever holding; a pack's may guard what this workspace has not."""
    body = source.settings["rules"][index]
    if rule.decision.outcome == "allow" or source.origin.packed:
        return
    for pointer, why in _unknown(body, args):
        if not _absent(body, pointer):
            found = violation(("rules", index, "match", "args", pointer), f"{why}; {_so(body, pointer)}")
            yield fault("BINDING_INVALID", str(found), place=source.origin.place(found.pointer, key=True))


def _absent(rule: Object, pointer: str) -> bool:
    """Say whether the argument at *pointer* is wanted absent."""
    wanted = _pointers(rule)[pointer]
    return isinstance(wanted, dict) and wanted.get("present") is False


def _so(rule: Object, pointer: str) -> str:
    return "it is always absent" if _absent(rule, pointer) else "this rule can never hold"


def _place(source: PolicySource, index: int, pointer: str) -> str:
    return source.origin.place(violation(("rules", index, "match", "args", pointer), "").pointer, key=True)


def _arguments(rule: Rule, fits: list[tuple[AbilityFacts, Entry]], schemas: Mapping[str, Object]) -> list[list[Object]]:
    """Return the schemas of the arguments of each ability that *rule* can be about; none where a model is among them.

    A request to a model is bound by the completion contract, which is not the plugin's own schema.
    """
    found = [ability for facts, ability in fits if rule.match.could_match(facts)]
    if any(ability["kind"] == "model" for ability in found):
        return []
    return [[schemas[ability[key]] for key in ("takes", "schema_in") if ability[key] in schemas] for ability in found]


def _flaws(
    source: PolicySource, index: int, rule: Rule, reads: Sequence[str], args: list[list[Object]]
) -> Iterator[DomainError]:
    if rule.when is None:
        return
    for flaw in flaws(rule.when, args, reads):
        found = violation(("rules", index, "when"), flaw.message)
        yield fault("BINDING_INVALID", str(found), place=source.origin.within(found.pointer, flaw.at))
