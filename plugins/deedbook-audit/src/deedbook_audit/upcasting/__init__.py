"""Older forms of events and ledgers. Each form is converted to the next one by a pure function."""
