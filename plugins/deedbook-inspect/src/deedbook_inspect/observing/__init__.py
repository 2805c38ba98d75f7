"""Figures of ledgers, and the forms that other programs read."""
