"""Workflows: cycles, phases, policies, personas and artifacts as Markdown files, and the flow that runs them."""
