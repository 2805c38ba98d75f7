"""What the hooks and policies of a charter apply to, what no policy applies to, and the notes that matter here."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from deedbook.charter.policies import Targets, lint_policies
from deedbook.contract.lifecycle import EVENTS
from deedbook.plugins.policy_kinds import Kinds
from deedbook.policy.defaults import Uncovered, find_uncovered
from deedbook.policy.fitting import PolicyNote, facts_of, fittings, judges_calls
from deedbook.policy.match import AbilityFacts
from deedbook.workspace.declarations import PolicySource

Entry: TypeAlias = Mapping[str, Any]


def find_unguarded(document: Entry) -> list[Uncovered]:
    """Return the abilities with calls that no policy covers, each with what then happens to these calls."""
    return find_uncovered(document, fittings(document, "policies"))


def covers(document: Entry) -> dict[str, list[str]]:
    """Return for every policy of a charter the abilities that it applies to."""
    abilities = list(_abilities(document))
    return {
        fit.name: [facts.id for facts, entry in abilities if fit.fits(facts, entry["policies"])]
        for fit in fittings(document, "policies")
    }


def find_unmatched(document: Entry) -> list[str]:
    """Return the hooks of calls, and the policies, that apply to no ability and are never asked."""
    abilities = list(_abilities(document))
    hooks = [fit for fit in fittings(document, "hooks") if EVENTS[fit.entry["event"]].call]
    named = [(f"hook {fit.name}", fit, _hook_names) for fit in hooks]
    policies = [fit for fit in fittings(document, "policies") if judges_calls(fit.entry)]
    named += [(f"policy {fit.name}", fit, _policy_names) for fit in policies]
    return [what for what, fit, of in named if not any(fit.fits(facts, of(entry)) for facts, entry in abilities)]


def _abilities(document: Entry) -> Iterator[tuple[AbilityFacts, Entry]]:
    return ((facts_of(name, entry), entry) for name, entry in sorted(document["abilities"].items()))


def _hook_names(entry: Entry) -> list[str]:
    return [name for names in entry["hooks"].values() for name in names]


def _policy_names(entry: Entry) -> list[str]:
    named: list[str] = entry["policies"]
    return named


# --- notes ------------------------------------------------------------------------------------------------------------


def lint_own_policies(document: Entry, kinds: Kinds, sources: Mapping[str, PolicySource]) -> list[PolicyNote]:
    """Return the notes on a workspace's own policies. Policies of a pack may be meant for other workspaces."""
    found = lint_policies(document, kinds, sources)
    return [each for each in found if each.policy not in sources or not sources[each.policy].origin.packed]


def lint_policies_here(document: Entry, kinds: Kinds, sources: Mapping[str, PolicySource]) -> list[PolicyNote]:
    """Return the notes on policies, without those on rules of packs that can decide about no ability here.

    Such a rule may be meant for another workspace; `deedbook pack lint` checks it.
    """
    found = lint_policies(document, kinds, sources)
    packed = {each.policy for each in found if each.policy in sources and sources[each.policy].origin.packed}
    reached = {name: reachable_rules(document, kinds, name) for name in packed}
    return [
        each for each in found if each.rule is None or (rules := reached.get(each.policy)) is None or each.rule in rules
    ]


def reachable_rules(document: Entry, kinds: Kinds, policy: str) -> frozenset[int | None] | None:
    """Return the rules that can decide (``None``: the default); ``None`` if the policy's kind cannot list them."""
    entry = document["policies"][policy]
    kind = kinds(entry["plugin"][1])
    return kind.reachable(entry["settings"], Targets.of(document).of_policy(policy, entry)) if kind else None
