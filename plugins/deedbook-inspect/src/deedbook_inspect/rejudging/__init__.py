"""Recorded calls judged again: why one was decided so, and what another charter would change."""
