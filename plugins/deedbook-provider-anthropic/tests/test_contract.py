"""The provider keeps the contract of every provider for a vendor's protocol, over real HTTP."""

from deedbook_testing import HostedProviderContract
from deedbook_testing.endpoints import Messages


class TestAnthropic(HostedProviderContract):
    name = "anthropic"
    protocol = Messages()
    sdk = "anthropic"
    extra = "deedbook-provider-anthropic[sdk]"
