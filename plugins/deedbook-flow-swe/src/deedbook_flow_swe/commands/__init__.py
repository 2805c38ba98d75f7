"""The command `deedbook swe`."""
