"""Witnesses: the program that remembers how far each log was and signs what goes on from there; how one is asked."""
