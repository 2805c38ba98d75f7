"""Verification of ledgers: bytes, structure, evidence, and decisions derived again. Start with `verify.py`."""
