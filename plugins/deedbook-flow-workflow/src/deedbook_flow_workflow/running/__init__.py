"""The run of a cycle: its phases, personas, policies and artifacts."""
