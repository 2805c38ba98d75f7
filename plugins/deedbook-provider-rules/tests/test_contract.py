"""The providers keep the contract that third parties keep."""

import json

from deedbook_testing import Example, ProviderContract

ROOMS = ("deedbook.format.pointers",)
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestRules(ProviderContract):
    """Without a rule that fits it invents nothing, whatever it is asked for."""

    name = "rules"
    rooms = ROOMS
    plain = Example(ProviderContract.plain.args, fails="NO_RULE")
    with_tools = Example(ProviderContract.with_tools.args, fails="NO_RULE")
    with_schema = Example(ProviderContract.with_schema.args, fails="INTAKE_REFUSED")


class TestTranscript(ProviderContract):
    name = "transcript"
    rooms = ROOMS
    settings = {"path": "played.jsonl"}
    bad_settings = ({}, {"path": 1})
    directive = json.dumps({"intent": "greet", "constraints": [], "schema_version": "v1"})

    def prepare(self, lab):
        call = {"id": "t1", "name": "echo", "args": {"text": "hi"}}
        said = (
            {"text": "hello"},
            {"text": "", "tool_calls": [call], "finish_reason": "tool_use"},
            {"text": self.directive},
        )
        lines = "".join(json.dumps({"role": "worker", "response": each}) + "\n" for each in said)
        lab.write("played.jsonl", lines, system=False)

    def ask(self, session, example):
        return super().ask(session, Example({**example.args, "role": "worker"}))
