"""Policy kinds about findings: ``confidence-gating`` and ``severity-routing``."""

from typing import Any, ClassVar, Final

from deedbook.contract import Decision, GateSpec, Object, Outcome

from .expressions import Unclear
from .subject_rules import OUTCOMES, SubjectPolicy, SubjectRule, settings_schema, subject_spec
from .subjects import FINDING

ROUTES: Final = ("apply", "gated", "manual", "advisory")
"""What becomes of a finding, the most permissive first."""


class ConfidenceGating(SubjectPolicy):
    """Splits findings into those that count and those that are suppressed.

    ``allow`` and ``advisory`` count, ``deny`` suppresses. The signal ``split`` says ``actionable`` or ``suppressed``. A
    finding that cannot be judged is denied, and stays actionable: an error hides nothing.
    """

    subject: ClassVar[str] = "finding"
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema("Which findings count, by confidence and severity"), "finding", FINDING
    )

    @classmethod
    def signals(cls, rule: Object) -> Object:
        """Return on which side of the split a finding is."""
        return _split(rule["then"])

    def default(self, outcome: Outcome) -> Decision:
        """Return the default, with its side of the split."""
        decision = super().default(outcome)
        return Decision(outcome, decision.reason, None, _split(outcome))

    def unclear(self, rule: SubjectRule, why: Unclear) -> Decision:
        """Deny, and suppress nothing."""
        decision = super().unclear(rule, why)
        return Decision(decision.outcome, decision.reason, None, {**decision.signals, "split": "actionable"})


class SeverityRouting(SubjectPolicy):
    """Routes findings by severity and autofix class: each rule has a ``route``, which the decision signals.

    Of rules with the same answer the one with the more conservative route decides.
    """

    subject: ClassVar[str] = "finding"
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema(
            "What becomes of findings, by severity and autofix class",
            {"route": {"description": "What becomes of the finding", "enum": list(ROUTES)}},
        ),
        "finding",
        FINDING,
    )

    @classmethod
    def signals(cls, rule: Object) -> Object:
        """Return the route, if the rule has one."""
        return {"route": rule["route"]} if "route" in rule else {}

    def strictness(self, rule: SubjectRule) -> Any:
        """Return the order of answers, and then of routes."""
        route = rule.decision.signals.get("route", ROUTES[0])
        return OUTCOMES.index(rule.decision.outcome), -ROUTES.index(route)


def _split(outcome: Outcome) -> Object:
    return {"split": "suppressed" if outcome == "deny" else "actionable"}
