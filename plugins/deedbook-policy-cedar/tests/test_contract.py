"""The policy kind keeps the contract that every policy kind keeps."""

from deedbook_testing import GateCase, PolicyContract

ROOMS = ("deedbook.format", "deedbook.format.errors")
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestCedar(PolicyContract):
    name = "cedar"
    settings = {
        "rules": [
            {"cedar": '@id("all") permit(principal, action, resource);'},
            {"cedar": '@id("closed") @reason("it is closed") forbid(principal, action, resource) '
                      'when { resource.tags.contains("closed") };'},
        ]
    }  # fmt: skip
    bad_settings = ({}, {"rules": [{"cedar": ""}]}, {"rules": [{"text": "x"}]}, {"rules": "permit"})
    cases = (
        GateCase(because="permit 'all'"),
        GateCase(ability="shut", tags=("closed",), decides="deny", because="forbid 'closed': it is closed"),
        GateCase(ability="other", args={"n": 1.5}, decides="deny", because="/args/n is a number with a fraction"),
        GateCase(ability="other", args={"a": [{"b": None}]}, decides="deny", because="/args/a/0/b is null"),
    )
    rooms = ROOMS
