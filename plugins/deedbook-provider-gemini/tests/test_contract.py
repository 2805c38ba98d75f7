"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP."""

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import GenerateContent


class TestGemini(HostedProviderContract):
    name = "gemini"
    protocol = GenerateContent()
    sdk = "google.genai"
    extra = "deedbook-provider-gemini[sdk]"
