"""The policy kinds keep the contract that third parties keep."""

from deedbook_testing import GateCase, PolicyContract

FINDING = {
    "id": "f1", "reviewer": "reviewer/style", "severity": "P0", "autofix_class": "manual", "confidence": 75,
    "title": "t",
}  # fmt: skip
GENERATION = {"number": 2, "fingerprints": ["a"], "history": [{"fingerprints": ["a"]}]}

ROOMS = (
    "deedbook.contract.features", "deedbook.format", "deedbook.format.canonical", "deedbook.format.errors",
    "deedbook.format.events", "deedbook.format.lint", "deedbook.format.reader", "deedbook.format.schema",
    "deedbook.policy", "deedbook.policy.conditions", "deedbook.policy.gates", "deedbook.policy.match",
)  # fmt: skip
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestBudget(PolicyContract):
    name = "budget"
    settings = {"limits": {"calls": 2}}
    bad_settings = ({"limits": {}}, {"limits": {"calls": -1}})
    cases = (GateCase(), GateCase(), GateCase(decides="deny", because="2 of 2"))
    rooms = ROOMS


class TestBudgetOverSessions(PolicyContract):
    name = "budget"
    settings = {"per": "principal", "account": "all", "limits": {"calls": {"sub*": 2}, "depth": 1}}
    bad_settings = (
        {"limits": {"calls": 1}, "per": "everybody", "account": "all"},
        {"limits": {"calls": 1}, "per": "actor"},
        {"limits": {"calls": 1}, "account": "all"},
        {"limits": {"calls": 1}, "per": "actor", "account": "all", "every": "year"},
    )
    cases = (GateCase(), GateCase(), GateCase(ability="other"), GateCase(decides="deny", because="2 of 2"))
    rooms = ROOMS


class TestRules(PolicyContract):
    name = "rules"
    settings = {
        "reads": ["session.calls"],
        "rules": [
            {"match": {"abilities": "forbidden"}, "then": "deny", "reason": "it is forbidden"},
            {"match": {}, "when": "size(facts.session.calls) < 1", "then": "allow"},
        ],
        "default": "ask",
    }
    bad_settings = ({}, {"rules": [{"match": {}}]}, {"rules": [], "default": "perhaps"})
    cases = (
        GateCase(),
        GateCase(ability="forbidden", decides="deny", because="it is forbidden"),
        GateCase(decides="ask", because="no rule matches"),
    )
    rooms = ROOMS


class TestConfidenceGating(PolicyContract):
    name = "confidence-gating"
    settings = {"rules": [{"match": {"confidence": [75, 100]}, "then": "allow"}]}
    bad_settings = ({}, {"rules": [{"match": {}, "then": "allow"}]}, {"rules": [], "default": "ask"})
    cases = (
        GateCase(about="finding", subject=FINDING),
        GateCase(about="finding", subject={**FINDING, "confidence": 50}, decides="deny", because="no rule matches"),
    )
    rooms = ROOMS


class TestSeverityRouting(PolicyContract):
    name = "severity-routing"
    settings = {"rules": [{"match": {"severity": "P0"}, "then": "deny", "route": "manual"}]}
    bad_settings = ({}, {"rules": [{"match": {"severity": "P0"}, "then": "deny", "route": "later"}]})
    cases = (GateCase(about="finding", subject=FINDING, decides="deny", because="rule 1"),)
    rooms = ROOMS


class TestModeDispatch(PolicyContract):
    name = "mode-dispatch"
    settings = {"rules": [{"match": {"mode": "headless"}, "then": "allow", "deliverables": ["findings"]}]}
    bad_settings = ({}, {"rules": [{"match": {"mode": "headless"}, "then": "allow", "ux": ""}]})
    cases = (
        GateCase(about="dispatch", subject={"persona": "a", "mode": "headless"}),
        GateCase(about="dispatch", subject={"persona": "a"}, decides="deny", because="no rule matches"),
    )
    rooms = ROOMS


class TestLoopHalt(PolicyContract):
    name = "loop-halt"
    settings = {"rules": [{"match": {"oscillates": True}, "then": "deny"}], "default": "allow"}
    bad_settings = ({}, {"rules": [{"when": "", "then": "deny"}]})
    cases = (
        GateCase(about="generation", subject=GENERATION, decides="deny", because="rule 1"),
        GateCase(about="generation", subject={**GENERATION, "fingerprints": ["b"]}),
    )
    rooms = ROOMS


def review(**more):
    found = {"task": "t", "phase": "security", "severities": [], "touches": [], "new_services": []}
    return {**found, "schema_changes": False, "first_review": False, **more}


class TestReviewGating(PolicyContract):
    name = "review-gating"
    settings = {"rules": [{"when": '"auth" in review.touches', "then": "deny"}], "default": "allow"}
    bad_settings = ({}, {"rules": [{"when": "", "then": "deny"}]})
    cases = (
        GateCase(about="review", subject=review()),
        GateCase(about="review", subject=review(touches=["auth"]), decides="deny", because="rule 1"),
    )
    rooms = ROOMS


class TestCoverageGating(PolicyContract):
    name = "coverage-gating"
    settings = {"rules": [{"when": "size(coverage.failed) <= 1", "then": "allow"}]}
    bad_settings = ({}, {"rules": [], "thresholds": []})
    cases = (
        GateCase(about="coverage", subject={"asked": 2, "reported": 1, "failed": ["a"]}),
        GateCase(about="coverage", subject={"asked": 3, "reported": 1, "failed": ["a", "b"]}, decides="deny"),
    )
    rooms = ROOMS


class TestRolePermissions(PolicyContract):
    name = "role-permissions"
    settings = {"personas": {"reviewer/*": {"writes": ["reports"]}}, "rules": []}
    bad_settings = ({}, {"rules": [], "personas": {"a": {"writes": ["reports"], "reads": []}}})
    cases = (
        GateCase(decides="advisory"),
        GateCase(about="dispatch", subject={"persona": "reviewer/style"}, decides="deny", because="no rule matches"),
    )
    rooms = ROOMS
