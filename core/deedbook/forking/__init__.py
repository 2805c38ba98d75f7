"""A session begun from another's past: what was recorded is served again, and nothing that it did is done twice."""
