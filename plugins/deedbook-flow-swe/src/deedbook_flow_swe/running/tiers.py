"""Which tier of models a run of a phase asks."""

from deedbook import Object, Run
from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.definition import Definition
from deedbook_flow_swe.learning.routing import RoutingPolicy, TierChoice, choose


def choose_tier(definition: Definition, contract: Contract, unit: Object | None, facts: Object, run: Run) -> TierChoice:
    """Return the tier that the routing policy of *definition* chooses, with the rule and the reason.

    Raises `Failed` (``NOT_AVAILABLE``) if the profile has no model.
    """
    policy = RoutingPolicy.parse(definition.routing) if definition.routing is not None else None
    return choose(policy, contract.phase, unit, facts, default=contract.tier, tiers=run.tiers())
