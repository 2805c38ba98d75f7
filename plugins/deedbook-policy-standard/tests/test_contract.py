"""The policy kinds keep the contract that third parties keep."""

from deedbook_testing import Asked, PolicyContract

ROOMS = (
    "deedbook.format", "deedbook.format.errors", "deedbook.format.lint", "deedbook.format.pointers",
    "deedbook.format.schema", "deedbook.policy", "deedbook.contract.facts", "deedbook.policy.gates",
    "deedbook.policy.match",
)  # fmt: skip
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestBudget(PolicyContract):
    name = "budget"
    settings = {"limits": {"calls": 2}}
    bad_settings = ({"limits": {}}, {"limits": {"calls": -1}})
    cases = (Asked(), Asked(), Asked(decides="deny", because="2 of 2"))
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
