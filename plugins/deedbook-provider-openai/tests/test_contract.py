"""The provider keeps the contract that third parties keep, over real HTTP."""

import json

import pytest

from deedbook_testing import Example, ProviderContract

DIRECTIVE = {
    "intent": "greet", "constraints": [], "needs_advisor": False, "needs_scaffolder": False, "schema_version": "v1",
}  # fmt: skip


class TestOpenAI(ProviderContract):
    name = "openai"
    model = "gpt-x"
    secrets = {"main": "sk-contract-0123456789"}
    bad_settings = ({"base_url": 1}, {"key": ["sk-in-the-open"]})
    examples = (Example({"messages": [{"role": "user", "content": "Fail."}]}, fails="PROVIDER_ERROR"),)

    @pytest.fixture(autouse=True)
    def server(self, endpoint, say):
        def play(body):
            if body["messages"][0]["content"] == "Fail.":
                return say.error(401, "no such key")
            if body.get("tools"):
                return say.answer(None, [say.call("echo", {"text": "hello"})])
            return say.answer(json.dumps(DIRECTIVE) if "response_format" in body else "hello")

        endpoint.always = play
        self.settings = {"base_url": endpoint.url, "key": "main"}
