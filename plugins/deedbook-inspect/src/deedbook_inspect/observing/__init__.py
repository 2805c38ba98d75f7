"""Figures of ledgers, and formats for other programs."""
