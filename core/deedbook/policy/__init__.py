"""Match, conditions, gates, judge: decides about a call without any I/O. Start with `judge.py`."""
