"""The policy kinds keep the contract that third parties keep."""

from deedbook_testing import Asked, PolicyContract


class TestBudget(PolicyContract):
    name = "budget"
    settings = {"limits": {"calls": 2}}
    bad_settings = ({"limits": {}}, {"limits": {"calls": -1}})
    cases = (Asked(), Asked(), Asked(decides="deny", because="2 of 2"))
