"""Attacks against a scratch copy of a workspace: which guarantees hold under its configuration. Start with `runner`."""
