"""The decisions of policies in a cycle: who is asked, which findings count, and whether a phase runs again."""

from collections.abc import Sequence
from typing import Any, Final

from deedbook import Decision, Object, Run
from deedbook_flow_workflow.aggregate import ROUTES, FindingAnswer, Fingerprint, fingerprint
from deedbook_flow_workflow.definition import FINDING, Definition, Phase

from .events import GATED

_ALLOW: Final = Decision("allow")
_LONGEST: Final = 2000


class Judgement:
    """Asks the policies of a cycle and of its *phase*, in order, about the subjects that they judge."""

    def __init__(self, run: Run, definition: Definition, phase: Phase) -> None:
        self._run, self._cycle, self._phase = run, definition.cycle.id, phase.id
        named = dict.fromkeys((*definition.cycle.policies, *phase.policies))
        self._subjects = {policy: run.subjects(policy) for policy in named}

    def judges(self, subject: str) -> bool:
        """Return whether any policy judges *subject*."""
        return any(subject in subjects for subjects in self._subjects.values())

    def decide(self, subject: str, value: Object) -> Decision:
        """Return the strictest decision about *value*, with the signals of all; without a policy it is allowed.

        Every decision is recorded. After a denial no further policy is asked.
        """
        strictest = _ALLOW
        signals: dict[str, Any] = {}
        for policy, decision in self._decisions(subject, value):
            signals |= decision.signals
            if decision.outcome not in ("allow", "advisory"):
                strictest = Decision("deny", f"{policy}: {decision.reason}" if decision.reason else policy)
                break
            if decision.outcome == "advisory":
                strictest = decision
        return Decision(strictest.outcome, strictest.reason, None, signals)

    def decide_findings(self, findings: Sequence[Object]) -> dict[Fingerprint, list[FindingAnswer]]:
        """Return what every policy says about each finding."""
        return {
            fingerprint(finding): [_read_answer(decision) for _, decision in self._decisions(FINDING, finding)]
            for finding in findings
        }

    def _decisions(self, subject: str, value: Object) -> list[tuple[str, Decision]]:
        asked = [policy for policy, subjects in self._subjects.items() if subject in subjects]
        return [(policy, self._ask(policy, subject, value)) for policy in asked]

    def _ask(self, policy: str, subject: str, value: Object) -> Decision:
        found = self._run.decide(policy, subject, value)
        self._run.record(
            GATED,
            {
                "cycle_id": self._cycle,
                "phase": self._phase,
                "policy_id": policy,
                "subject": subject,
                "decision": found.decision.outcome if found.decision.outcome in ("allow", "advisory") else "deny",
                "reason": found.decision.reason[:_LONGEST],
                "check": found.span,
            },
        )
        return found.decision


def _read_answer(decision: Decision) -> FindingAnswer:
    route: Any = decision.signals.get("route", "")
    return FindingAnswer(
        outcome=decision.outcome,
        route=route if route in ROUTES else "",
        suppresses=decision.outcome == "deny" and decision.signals.get("split") == "suppressed",
    )
