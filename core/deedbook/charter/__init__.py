"""Compile, compare, lock, store and bind a charter. Start with `compiler.py` and `locks.py`."""
