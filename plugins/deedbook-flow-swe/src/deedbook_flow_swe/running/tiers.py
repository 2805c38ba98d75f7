"""Which tier of models a run of a phase asks."""

from typing import NamedTuple

from deedbook import Object, Run
from deedbook_flow_swe.contract import Contract
from deedbook_flow_swe.definition import Definition


class TierChoice(NamedTuple):
    """The tier, the rule that chose it, and the reason."""

    tier: str
    rule: str
    reason: str


def choose_tier(  # noqa: D103
    definition: Definition, contract: Contract, unit: Object | None, facts: Object, run: Run
) -> TierChoice:
    return TierChoice(contract.tier, "default", "the tier of the contract")
