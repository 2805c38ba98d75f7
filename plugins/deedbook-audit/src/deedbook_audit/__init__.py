"""Verification of ledgers: bytes, structure, evidence, and decisions judged again. Start with `verify.py`."""
