"""Which tier of models a phase asks: the routing policy, and the choice for one run of a phase; pure.

A policy is data (``routing_policy_v1``). A choice depends only on the policy and on recorded facts, so that it can be
repeated from the record.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import attrs

from deedbook import Failed, Object
from deedbook.format import canonical

DEFAULT: Final = "default"
"""The rule that is recorded if no rule of the phase applies."""
FALLBACK: Final = "fallback:"
"""What precedes the rule if the profile lacks the tier of the rule."""


class TierChoice(NamedTuple):
    """The tier to ask, the id of the rule that chose it, and why."""

    tier: str
    rule: str
    reason: str


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of a phase: the *tier* where all conditions of *when* hold."""

    id: str
    when: Object
    tier: str
    reason: str

    def applies(self, unit: Object | None, facts: Object) -> bool:
        """Return whether all conditions hold for *unit* and *facts* (`choose`)."""
        return all(_CONDITIONS[name](expected, unit or {}, facts) for name, expected in self.when.items())


@attrs.frozen(kw_only=True)
class PhaseRouting:
    """The tier of a phase, and the rules that may choose another one; the first that applies decides."""

    tier: str
    rules: tuple[Rule, ...] = ()


@attrs.frozen(kw_only=True)
class RevisionTerms:
    """When data may revise a policy.

    At least *tasks* tasks have ended. At least *runs* runs are enough data about one tier. The tier is raised if
    *raise_at* percent of them were rolled back, and lowered if at most *lower_at* percent were; ``None`` never lowers.
    """

    tasks: int = 50
    runs: int = 10
    raise_at: int = 25
    lower_at: int | None = None


@attrs.frozen(kw_only=True)
class RoutingPolicy:
    """A routing policy: the *ladder* of tiers from the cheapest up, and the routing of each phase.

    *document* is the policy as data.
    """

    id: str
    ladder: tuple[str, ...]
    phases: Mapping[str, PhaseRouting]
    revision: RevisionTerms
    document: Object

    @classmethod
    def parse(cls, document: Object) -> Self:
        """Return the policy in a *document* that matches ``routing_policy_v1``."""
        phases = {name: _parse_phase(row) for name, row in document["phases"].items()}
        return cls(
            id=document["id"],
            ladder=tuple(document["ladder"]),
            phases=phases,
            revision=RevisionTerms(**document.get("revision", {})),
            document=document,
        )

    def is_above(self, tier: str, other: str) -> bool:
        """Return whether both tiers are on the ladder, and *tier* above the *other* one."""
        known = {tier, other} <= set(self.ladder)
        return known and self.ladder.index(tier) > self.ladder.index(other)

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical document."""
        return digest_policy(self.document)


def digest_policy(document: Object) -> str:
    """Return the digest of a policy: the SHA-256 of its canonical JSON."""
    return canonical.digest(canonical.encode(dict(document)))


def _parse_phase(row: Object) -> PhaseRouting:
    rules = (Rule(id=each["id"], when=each["when"], tier=each["tier"], reason=each["reason"]) for each in _rules(row))
    return PhaseRouting(tier=row["tier"], rules=tuple(rules))


def _rules(row: Object) -> Sequence[Object]:
    found: Sequence[Object] = row.get("rules", ())
    return found


def find_faults(document: Object) -> Iterator[tuple[str, str]]:
    """Yield what no schema can express: a JSON pointer into a valid *document*, and a message.

    A tier that is not on the ladder could be neither raised, lowered nor replaced. Ids of rules name rows of evidence.
    """
    ladder = document["ladder"]
    known = f"the ladder has {', '.join(ladder)}"
    for phase, row in document["phases"].items():
        if row["tier"] not in ladder:
            yield f"/phases/{phase}/tier", f"the tier {row['tier']} is not on the ladder; {known}"
        seen = {DEFAULT}
        for index, rule in enumerate(_rules(row)):
            at = f"/phases/{phase}/rules/{index}"
            if rule["tier"] not in ladder:
                yield f"{at}/tier", f"the tier {rule['tier']} is not on the ladder; {known}"
            if rule["id"] in seen:
                yield f"{at}/id", f"the id {rule['id']} is taken; each rule of a phase needs an id of its own"
            seen.add(rule["id"])
    terms = document.get("revision", {})
    if terms.get("lower_at", -1) >= terms.get("raise_at", RevisionTerms().raise_at):
        yield "/revision/lower_at", "lower_at must be below raise_at"


# --- the choice -------------------------------------------------------------------------------------------------------


def choose(
    policy: RoutingPolicy | None,
    phase: str,
    unit: Object | None,
    facts: Object,
    *,
    default: str = "",
    tiers: Collection[str] | None = None,
) -> TierChoice:
    """Return the tier for one run of *phase*, with *unit* where the phase works on a unit.

    *facts* may have ``tags`` (of the task), ``text`` (what the task or the unit's interfaces say), ``verified_pattern``
    (whether a verified pattern matches the tags), ``findings`` (the classes of the findings so far) and ``rollbacks``
    (how often the phase was rolled back in this task); a missing fact fulfils no condition. A phase without a unit may
    have ``touches``, of all units together. *default* is the tier of
    the contract, for phases that the policy does not list. *tiers* are those of the profile: if the chosen one is not
    among them, the next more capable one is asked, otherwise the next cheaper one, and the choice says so.

    Raises `Failed` (``NOT_AVAILABLE``) if the profile has no tier at all.
    """
    choice = _apply(policy, phase, unit, facts, default)
    if tiers is None or choice.tier in tiers:
        return choice
    found = _find_fallback(choice.tier, policy.ladder if policy else (), tiers)
    why = f"{choice.reason}; the profile has no tier {choice.tier or 'for this phase'}, so {found} is asked instead"
    return TierChoice(found, f"{FALLBACK}{choice.rule}", why)


def _apply(policy: RoutingPolicy | None, phase: str, unit: Object | None, facts: Object, default: str) -> TierChoice:
    routing = policy.phases.get(phase) if policy else None
    if routing is None:
        return TierChoice(default, DEFAULT, "the tier of the contract")
    for rule in routing.rules:
        if rule.applies(unit, facts):
            return TierChoice(rule.tier, rule.id, rule.reason)
    return TierChoice(routing.tier, DEFAULT, "the tier of the phase")


def _find_fallback(wanted: str, ladder: Sequence[str], tiers: Collection[str]) -> str:
    """Return the tier of the profile that is nearest to the *wanted* one on the ladder, rather above than below."""
    position = ladder.index(wanted) if wanted in ladder else 0
    for tier in (*ladder[position + 1 :], *reversed(ladder[:position]), *sorted(tiers)):
        if tier in tiers:
            return tier
    raise Failed("NOT_AVAILABLE", "the profile has no model; add one to `models:` of the profile")


def _words(value: Any) -> set[str]:
    return {str(each).casefold() for each in value}


def _has_one(name: str) -> Callable[[Any, Object, Object], bool]:
    """Return the condition that one of the expected words is in the fact *name*."""
    return lambda expected, _unit, facts: bool(_words(expected) & _words(facts.get(name, ())))


def _mentions(expected: Any, _unit: Object, facts: Object) -> bool:
    text = " ".join(_split(str(facts.get("text", ""))))
    return any(f" {' '.join(_split(each))} " in f" {text} " for each in expected)


def _split(text: str) -> list[str]:
    return "".join(each if each.isalnum() else " " for each in text.casefold()).split()


def _touches(expected: Any, unit: Object, facts: Object) -> bool:
    return bool(_words(expected) & _words((unit or facts).get("touches", ())))


def _is_pattern_known(expected: Any, _unit: Object, facts: Object) -> bool:
    return facts.get("verified_pattern") is expected


def _was_rolled_back(expected: Any, _unit: Object, facts: Object) -> bool:
    return int(facts.get("rollbacks", 0)) >= int(expected)


_CONDITIONS: Final[Mapping[str, Callable[[Any, Object, Object], bool]]] = MappingProxyType(
    {
        "tags": _has_one("tags"),
        "findings": _has_one("findings"),
        "mentions": _mentions,
        "unit_types": lambda expected, unit, _facts: unit.get("type") in expected,
        "unit_sizes": lambda expected, unit, _facts: unit.get("size") in expected,
        "unit_touches": _touches,
        "verified_pattern": _is_pattern_known,
        "rollbacks": _was_rolled_back,
    }
)
"""The conditions of rules: each is asked with what the rule expects, the unit and the facts."""
