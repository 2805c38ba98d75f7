"""Calls that a person decides: what is asked, who answers it with which key, what waits and goes on."""
