"""Deedbook."""
