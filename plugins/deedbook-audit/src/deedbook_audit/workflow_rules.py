"""The rules for the cycles of workflows in one session: each begins once, goes from phase to phase, and ends once.

A cycle that a hook of ``WorkflowStart`` refuses has ``workflow.aborted`` and nothing else.

The events of a cycle stand under the ``flow.call`` of its run. The check is independent of the writer. Where a payload
was excised, values that it would hold are not compared.
"""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Object

STARTED: Final = "workflow.started"
ADVANCED: Final = "workflow.phase_advanced"
GATED: Final = "workflow.policy_gated"
ABORTED: Final = "workflow.aborted"
ENDS: Final = frozenset({"workflow.completed", ABORTED})
CHECK: Final = "policy.check"
ABOUT: Final = frozenset({STARTED, ADVANCED, GATED, *ENDS, "flow.result", "flow.error"})
"""The event types that these rules check; the checks of subjects are given to `WorkflowRules.add_check`."""
_NOTHING: Final[Object] = MappingProxyType({})


@attrs.define
class _CycleState:
    """One cycle as far as the ledger was read: its id, the present phase, its end, and decisions that nothing named.

    *hidden* counts the excised events that may have named one.
    """

    cycle: Any
    phase: Any
    end: str = ""
    checks: dict[bytes, Object] = attrs.field(factory=dict)
    hidden: int = 0


class WorkflowRules:
    """The cycles of one session: call `check` for every event of `ABOUT` in order; it yields the violations.

    Memory grows with the cycles that are open, and their decisions that no ``workflow.policy_gated`` has named yet.
    """

    def __init__(self) -> None:
        self._cycles: dict[bytes, _CycleState] = {}

    def add_check(self, span: bytes, parent: bytes | None, payload: Any) -> None:
        """Keep the decision about a subject, which a cycle must name."""
        cycle = self._cycles.get(parent or b"")
        if cycle is not None and (not isinstance(payload, dict) or "subject" in payload):
            cycle.checks[span] = payload if isinstance(payload, dict) else _NOTHING

    def check(self, kind: str, parent: bytes | None, payload: Any) -> Iterator[str]:
        """Yield the violations of the next event; *payload* is no object if it was excised."""
        said: Object = payload if isinstance(payload, dict) else _NOTHING
        above = parent or b""
        if kind in ("flow.result", "flow.error"):
            yield from self._close(kind, above, said)
            return
        if kind == STARTED:
            yield from self._start(above, said)
            return
        cycle = self._cycles.get(above)
        if cycle is None and kind == ABORTED:
            self._cycles[above] = _CycleState(said.get("cycle_id"), None, kind)
            return
        if cycle is None:
            yield f"{kind} without a {STARTED} before it in the same run"
            return
        if cycle.end:
            yield f"{kind} after {cycle.end} of the same cycle"
        if _differ(said.get("cycle_id"), cycle.cycle):
            yield f"{kind} of the cycle {said['cycle_id']!r} in a run of {cycle.cycle!r}"
        if kind == ADVANCED:
            yield from self._advance(cycle, said)
        elif kind == GATED:
            yield from self._gate(cycle, said)
        else:
            cycle.end = kind

    def _start(self, run: bytes, said: Object) -> Iterator[str]:
        known = self._cycles.get(run)
        if known is not None:
            yield (
                f"{STARTED} after {known.end} of the same cycle" if known.end else f"a second {STARTED} in the same run"
            )
        self._cycles[run] = _CycleState(said.get("cycle_id"), said.get("entry_phase"))

    def _advance(self, cycle: _CycleState, said: Object) -> Iterator[str]:
        if _differ(said.get("from_phase"), cycle.phase):
            yield f"{ADVANCED} from {said['from_phase']!r}, and the cycle was in {cycle.phase!r}"
        cycle.phase = said.get("to_phase")

    def _gate(self, cycle: _CycleState, said: Object) -> Iterator[str]:
        """Check that the event names a decision of the same policy that stands before it, and says what that says."""
        if not isinstance(said.get("check"), str):
            cycle.hidden += 1
            return
        found = cycle.checks.pop(str(said["check"]).encode(), None)
        if found is None:
            yield f"{GATED} names {said['check']}, which is no policy.check of this run, or one that was named before"
        if not found:
            return
        asked = found.get("asked")
        line = asked[0] if isinstance(asked, list) and asked and isinstance(asked[0], dict) else _NOTHING
        if _differ(said.get("policy_id"), line.get("policy")):
            yield f"{GATED} of the policy {said['policy_id']!r} names a decision of {line['policy']!r}"
        wanted = _as_gated(found, line)
        if _differ(said.get("decision"), wanted):
            yield f"{GATED} says {said['decision']!r}, and the policy answered {wanted!r}"

    def _close(self, kind: str, run: bytes, said: Object) -> Iterator[str]:
        """Check, at the outcome of a run, that its cycle has ended, and that every decision was named.

        A run that was interrupted, or whose process died, could not say so.
        """
        cycle = self._cycles.pop(run, None)
        interrupted = kind == "flow.error" and said.get("outcome") != "failed"
        if cycle is None or interrupted or (kind == "flow.error" and not said):
            return
        if not cycle.end:
            yield f"the run of the cycle {cycle.cycle!r} ended without {' or '.join(sorted(ENDS))}"
        unnamed = sum(1 for found in cycle.checks.values() if found)
        if unnamed > cycle.hidden:
            yield f"{unnamed} decisions of policies in the cycle {cycle.cycle!r} without a {GATED}"


def _as_gated(found: Object, line: Object) -> Any:
    """Return what ``workflow.policy_gated`` says about a decision; under ``observe`` a gating answer is advisory."""
    decision = line.get("decision")
    if not isinstance(decision, str):
        return None
    if decision in ("allow", "advisory"):
        return decision
    return "advisory" if found.get("enforcement") == "observe" else "deny"


def _differ(said: Any, known: Any) -> bool:
    """Return whether two values are known and differ; sealed values are not compared."""
    return isinstance(said, str) and isinstance(known, str) and said != known
