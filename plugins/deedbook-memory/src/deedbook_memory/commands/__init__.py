"""The command `deedbook memory`."""
