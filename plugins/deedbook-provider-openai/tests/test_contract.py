"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP."""

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import ChatCompletions


class TestOpenAI(HostedProviderContract):
    name = "openai"
    protocol = ChatCompletions()
    sdk = "openai"
    once = {"retries": 0}
