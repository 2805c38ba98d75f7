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


class TestRouting(HookContract):
    name = "routing"
    event = "UserPromptSubmit"
    settings = {"limit": 3}
    bad_settings = ({"limit": "3"}, {"intent": 1})
    cases = (Asked(prompt="tell me where reports are"), Asked(prompt="say hello to Ada"), Asked(prompt="nothing fits"))

    def prepare(self, lab):
        lab.tool("greet", lambda args, ctx: args, routing_hints={"intents": ["hello"]})
        lab.guide("# Where things are\n\nReports are in [reports](../reports/README.md).\n")


class TestStop(HookContract):
    name = "stop"
    event = "Stop"
    cases = (Asked(decides="deny"),)
