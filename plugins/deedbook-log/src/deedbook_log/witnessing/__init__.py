"""Witnesses: the server, its store, and the client that asks one."""
