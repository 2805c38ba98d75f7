"""Witnesses: the HTTP server, the folder, and the store."""
