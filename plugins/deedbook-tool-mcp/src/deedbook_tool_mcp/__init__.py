"""The Model Context Protocol, both ways: servers whose tools are abilities, and abilities as the tools of a server."""
