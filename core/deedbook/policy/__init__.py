"""Match, conditions, gates, judge: decide about a call without any I/O. Start with `judge.py`."""
