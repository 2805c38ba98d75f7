"""The hooks keep the contract that third parties keep."""

from deedbook.plugins.plugins import discover
from deedbook_testing import GateCase, HookContract
from deedbook_testing.imports import foreign_imports

ROOMS = (
    "deedbook.charter", "deedbook.cli", "deedbook.contract.features", "deedbook.format", "deedbook.plugins",
    "deedbook.policy", "deedbook.workspace",
)  # fmt: skip
"""The distribution also holds the command and the feature of routing, which use these folders of the kernel."""


class TestAllow(HookContract):
    rooms = ROOMS
    name = "allow"
    cases = (GateCase(),)


class TestDenyTools(HookContract):
    rooms = ROOMS
    name = "deny-tools"
    settings = {"names": ["rm-*"]}
    bad_settings = ({"names": "rm-*"},)
    cases = (GateCase(ability="echo"), GateCase(ability="rm-all", decides="deny", because="dangerous"))


class TestRedactPii(HookContract):
    rooms = ROOMS
    name = "redact-pii"
    event = "UserPromptSubmit"
    cases = (GateCase(prompt="say hello"), GateCase(prompt="pay with 4111 1111 1111 1111", decides="transform"))


class TestRouting(HookContract):
    rooms = ROOMS
    name = "routing"
    event = "UserPromptSubmit"
    settings = {"limit": 3}
    bad_settings = ({"limit": "3"}, {"intent": 1})
    cases = (
        GateCase(prompt="tell me where reports are"),
        GateCase(prompt="say hello to Ada"),
        GateCase(prompt="nothing fits"),
    )

    def prepare(self, lab):
        lab.tool("greet", lambda args, ctx: args, routing_hints={"intents": ["hello"]})
        lab.guide("# Where things are\n\nReports are in [reports](../reports/README.md).\n")


class TestStop(HookContract):
    rooms = ROOMS
    name = "stop"
    event = "Stop"
    cases = (GateCase(decides="deny"),)


def test_modules_of_hooks_import_only_the_contract():
    found = {line.partition(":")[0] for line in foreign_imports(discover().find("hook", "routing"))}
    assert found <= {"feature.py", "guides.py", "request_redaction.py", "route.py", "routes.py"}
