"""Continue from a record: recorded outcomes are served to a session that repeats the calls."""
