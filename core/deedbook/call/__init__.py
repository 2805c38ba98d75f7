"""A call, from the session to the handler and back. Start with `session.py`, then `door.py`."""
