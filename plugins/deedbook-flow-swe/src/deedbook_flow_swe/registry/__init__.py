"""Reads the files of pipelines, checks them, and compiles a definition."""
