"""Recorded calls judged again: the reasons of a decision, and the changes under another charter."""
