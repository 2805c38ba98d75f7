"""What happens to a call with effects that no policy covers: the rule of a charter, its answer and its sentence.

A charter without the member ``default`` was compiled before there was such a rule: its calls are allowed.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from deedbook.contract import Decision
from deedbook.format import canonical

from .charter import DEFAULT
from .fitting import Fitting, facts_of
from .gates import ASK_BY_DEFAULT, BoundGate
from .kinds import KINDS
from .match import AbilityFacts

POLICY: Final = "deedbook:default"
"""The name under which the answer is recorded beside the policies; no policy can have it."""
PLACE: Final = ".system/deedbook.yaml"

Outcome: TypeAlias = Literal["allow", "ask", "deny"]

_OBSERVED: Final = "; under enforcement: observe this is only recorded"
_CONSEQUENCES: Final[Mapping[str | None, str]] = MappingProxyType(
    {
        "allow": "its calls are allowed where its scope, schema and hooks allow them",
        "ask": "a person decides about each call",
        "deny": f"its calls are denied, as default: in {PLACE} says",
        None: f"its calls are denied until a policy covers it, or {PLACE} says default: {{write: allow}}",
    }
)
"""What follows, by the answer; ``None``: the workspace says nothing, and the effects need an explicit answer."""


def suggest_cover(name: str, effects: str) -> str:
    """Return what to do so that a policy decides about calls of an ability, or so that they are allowed."""
    cover = f"add a policy with match: {{abilities: {name}}} that allows it"
    return f"{cover}, or write default: {{write: allow}} in {PLACE}" if effects == "write" else cover


class DefaultAnswer(NamedTuple):
    """The answer for one ability: the *gate* that is recorded, and its *decision*."""

    gate: BoundGate
    decision: Decision


def default_settings(said: Mapping[str, str]) -> dict[str, str | None]:
    """Return the member of a charter for what ``deedbook.yaml`` *said*."""
    return {"irreversible": said.get("irreversible", "ask"), "write": said.get("write")}


def default_answer(document: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> DefaultAnswer | None:
    """Return what answers for an ability of the charter's *document* where no policy does; ``None``: it is allowed."""
    outcome = _outcome(document, entry)
    if outcome == "allow":
        return None
    decision = Decision(outcome or "deny", describe_default(document, name, entry))
    identity = canonical.digest(canonical.encode({DEFAULT: {entry["effects"]: outcome}}))
    gate = BoundGate(
        id=POLICY,
        kind="policy",
        digest=identity,
        ask=lambda _: decision,
        may=frozenset({decision.outcome}),
        limit=1.0,
        pure=True,
        place=PLACE,
        loosens=frozenset(),
    )
    return DefaultAnswer(gate, decision)


def describe_default(document: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> str:
    """Return what happens to calls of an ability that no policy covers, as one sentence without its full stop."""
    outcome = _outcome(document, entry)
    observed = _OBSERVED if outcome != "allow" and document["enforcement"] == "observe" else ""
    return f"no policy covers {name}, whose effects are {entry['effects']}: {_CONSEQUENCES[outcome]}{observed}"


class Uncovered(NamedTuple):
    """An ability with calls that no policy covers: its *name*, whether policies cover *some* calls, and the *sentence*.

    *outcome* is the answer about these calls: ``None`` if the workspace had to give one, and gave none.
    """

    name: str
    some: bool
    outcome: Outcome | None
    sentence: str

    def __str__(self) -> str:
        """Return the sentence for a person."""
        return f"{'for some calls, ' if self.some else ''}{self.sentence}"


def find_uncovered(document: Mapping[str, Any], policies: Sequence[Fitting]) -> list[Uncovered]:
    """Return the abilities of a charter's *document* with calls that none of its *policies* covers, by name."""
    return [
        Uncovered(name, covered == "some", _outcome(document, entry), describe_default(document, name, entry))
        for name, entry in sorted(document["abilities"].items())
        if (covered := _covers(name, entry, policies)) != "all" and _is_reported(document, entry, covered)
    ]


def _is_reported(document: Mapping[str, Any], entry: Mapping[str, Any], covered: str) -> bool:
    """Return whether an ability is reported: one with calls that are not allowed, or one that no policy fits."""
    return _outcome(document, entry) != "allow" or (KINDS[entry["kind"]].is_listed and covered == "none")


def _covers(name: str, entry: Mapping[str, Any], policies: Sequence[Fitting]) -> Literal["all", "some", "none"]:
    """Return which calls of an ability are covered by a policy, as far as that is known before a call.

    A policy of a kind that also judges subjects may have no say about a call.
    """
    facts, named = facts_of(name, entry), entry["policies"]
    fitting = [fit for fit in policies if not fit.entry.get("limits") and fit.fits(facts, named)]
    if any(_is_always_asked(fit, facts, named) and not fit.entry.get("subjects") for fit in fitting):
        return "all"
    return "some" if fitting else "none"


def _is_always_asked(fitting: Fitting, facts: AbilityFacts, named: Collection[str]) -> bool:
    return fitting.match is None or fitting.name in named or fitting.match.test_for(facts) is None


def _outcome(document: Mapping[str, Any], entry: Mapping[str, Any]) -> Outcome | None:
    """Return the answer about calls of an ability; ``None``: the workspace had to give one, and gave none."""
    rule = document.get(DEFAULT)
    if rule is None or KINDS[entry["kind"]].needs_policy or entry["effects"] not in rule:
        return "allow"
    outcome: Outcome | None = rule[entry["effects"]]
    return "ask" if ASK_BY_DEFAULT in entry["tags"] and outcome in (None, "deny") else outcome
