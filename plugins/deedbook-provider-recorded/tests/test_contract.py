"""The provider keeps the contract that third parties keep."""

import json

import pytest

from deedbook_testing import Example, ProviderContract

ROOMS = ("deedbook.format.pointers",)
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestRecorded(ProviderContract):
    """What the contract asks is what was recorded; what else is asked fails."""

    name = "recorded"
    rooms = ROOMS
    settings = {"ledger": "recordings/r.jsonl"}
    bad_settings = ({}, {"ledger": 1}, {"ledger": "r.jsonl", "on_miss": "ask"}, {"ledger": "r.jsonl", "ignore": ["x"]})
    examples = (Example({"messages": [{"role": "user", "content": "Something else."}]}, fails="NOT_RECORDED"),)
    directive = json.dumps({"intent": "greet", "constraints": [], "schema_version": "v1"})

    whole = {
        "text": "", "tool_calls": [], "finish_reason": "stop", "model": "m-1", "schema_version": "v2",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip

    @pytest.fixture(autouse=True)
    def recordings(self, begin):
        self.begin = begin

    def prepare(self, lab):
        call = {"id": "t1", "name": "echo", "args": {"text": "hi"}}
        answers = (
            {"text": "hello"},
            {"text": "", "tool_calls": [call], "finish_reason": "tool_use"},
            {"text": self.directive},
        )
        made = self.begin()
        for example, answer in zip((self.plain, self.with_tools, self.with_schema), answers, strict=True):
            asked = {"model": self.model, "schema_version": "v2", **example.args}
            made.ask(asked, {**self.whole, **answer})
        lab.write("recordings/r.jsonl", made.bytes().decode(), system=False)
