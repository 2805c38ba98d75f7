"""The hooks keep the contract that third parties keep."""

from deedbook_testing import Asked, HookContract


class TestAllow(HookContract):
    name = "allow"
    cases = (Asked(),)


class TestDenyTools(HookContract):
    name = "deny-tools"
    settings = {"names": ["rm-*"]}
    bad_settings = ({"names": "rm-*"},)
    cases = (Asked(ability="echo"), Asked(ability="rm-all", decides="deny", because="dangerous"))


class TestRedactPii(HookContract):
    name = "redact-pii"
    event = "UserPromptSubmit"
    cases = (Asked(prompt="say hello"), Asked(prompt="pay with 4111 1111 1111 1111", decides="transform"))


class TestStop(HookContract):
    name = "stop"
    event = "Stop"
    cases = (Asked(decides="deny"),)
