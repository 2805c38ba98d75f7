"""The policy kinds keep the contract that third parties keep."""

from deedbook_testing import Asked, PolicyContract

ROOMS = (
    "deedbook.contract.features", "deedbook.format", "deedbook.format.canonical", "deedbook.format.errors",
    "deedbook.format.events", "deedbook.format.lint", "deedbook.format.reader", "deedbook.format.schema",
    "deedbook.policy", "deedbook.policy.gates", "deedbook.policy.match",
)  # fmt: skip
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestBudget(PolicyContract):
    name = "budget"
    settings = {"limits": {"calls": 2}}
    bad_settings = ({"limits": {}}, {"limits": {"calls": -1}})
    cases = (Asked(), Asked(), Asked(decides="deny", because="2 of 2"))
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
    cases = (Asked(), Asked(), Asked(ability="other"), Asked(decides="deny", because="2 of 2"))
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
        Asked(),
        Asked(ability="forbidden", decides="deny", because="it is forbidden"),
        Asked(decides="ask", because="no rule matches"),
    )
    rooms = ROOMS
