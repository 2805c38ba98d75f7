"""The command `deedbook workflow`."""
