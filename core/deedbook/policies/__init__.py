"""Policies of the kernel's own kind: rules, their conditions in CEL, and their tests."""
