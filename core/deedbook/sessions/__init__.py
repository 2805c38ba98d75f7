"""A session with its hooks, and the runs of its flows. `session.py` is where every call begins."""
