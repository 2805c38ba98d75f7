"""The command `deedbook route`."""
