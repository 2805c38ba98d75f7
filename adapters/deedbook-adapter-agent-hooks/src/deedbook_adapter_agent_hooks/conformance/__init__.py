"""The conformance kit of agent-hooks, run with a host whose tools and models are behind a guard."""
