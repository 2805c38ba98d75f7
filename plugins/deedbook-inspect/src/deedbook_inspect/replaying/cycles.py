"""The cycles of workflows in a session: computed from its ``workflow.*`` events, and from nothing else."""

from typing import Any

import attrs

from deedbook.contract import Event

_FAMILY = "workflow."


@attrs.define
class Cycle:
    """A cycle: the span of its *run*, its id, its present or last *phase*, and the *visited* phases in order.

    One that was refused at its start has no phase. The *verdict* is ``None`` as long as the cycle runs; *reason* is that
    of an abort. *gated* counts the decisions of policies by their outcome.
    """

    run: str
    cycle: Any
    phase: Any
    visited: list[Any]
    verdict: Any = None
    reason: Any = None
    gated: dict[str, int] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the cycle as JSON."""
        return attrs.asdict(self)


class CycleFold:
    """The fold whose state are the cycles of a session, in the order of their beginning."""

    def start(self) -> list[Cycle]:
        """Return no cycles."""
        return []

    def step(self, state: list[Cycle], event: Event) -> list[Cycle]:
        """Add *event*."""
        if not event.type.startswith(_FAMILY):
            return state
        said, run = event.payload, event.parent or ""
        if event.type == "workflow.started":
            phase = said.get("entry_phase")
            state.append(Cycle(run, said.get("cycle_id"), phase, [phase]))
            return state
        cycle = next((each for each in reversed(state) if each.run == run), None)
        if cycle is None and event.type == "workflow.aborted":
            cycle = Cycle(run, said.get("cycle_id"), None, [])
            state.append(cycle)
        if cycle is None:
            return state
        if event.type == "workflow.phase_advanced":
            cycle.phase = said.get("to_phase")
            cycle.visited.append(cycle.phase)
        elif event.type == "workflow.policy_gated":
            decision = str(said.get("decision"))
            cycle.gated[decision] = cycle.gated.get(decision, 0) + 1
        elif event.type == "workflow.completed":
            cycle.verdict = said.get("verdict")
        elif event.type == "workflow.aborted":
            cycle.verdict, cycle.reason = "abort", said.get("reason")
        return state
