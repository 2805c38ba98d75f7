"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP."""

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import OllamaChat


class TestOllama(HostedProviderContract):
    name = "ollama"
    protocol = OllamaChat()
