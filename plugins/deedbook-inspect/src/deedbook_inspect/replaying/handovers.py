"""Whom each role handed over to last: the member ``agents`` of the replay snapshot of seed 000."""

from typing import Final

from deedbook.contract import Event
from deedbook.format.families import RUN_ENDS
from deedbook.policy.callers import AGENT

TRANSITION: Final = "agent.transition"


class HandoverFold:
    """The fold whose state has, for each role, whom it handed over to last.

    The role is the agent that the event names as its principal, as in imported ledgers, or the member ``from``. A
    hand-over by no role is that of the actor, such as ``runtime``.
    """

    def start(self) -> dict[str, object]:
        """Return no hand-overs."""
        return {}

    def step(self, state: dict[str, object], event: Event) -> dict[str, object]:
        """Apply *event*."""
        to = event.payload.get("to")
        if event.type != TRANSITION or to in RUN_ENDS:
            return state
        before = event.payload.get("from")
        if event.principal is not None and event.principal.startswith(AGENT):
            before = event.principal.removeprefix(AGENT)
        state[before if isinstance(before, str) else event.actor] = to
        return state
