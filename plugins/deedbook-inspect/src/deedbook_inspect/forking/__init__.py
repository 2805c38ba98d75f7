"""Forks: sessions that continue from a point in the past of another session."""
