"""Compile, compare, lock, keep and bind a charter. Start with `charter.py`."""
