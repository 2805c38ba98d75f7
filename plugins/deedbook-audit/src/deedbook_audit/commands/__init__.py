"""The command `deedbook verify`."""
