"""Older forms of events, each brought to the next one by a pure function: `table` has them all, `reader` uses it."""
