"""Agents as processes of their own: they get work from an inbox, and the runner performs their requests."""
