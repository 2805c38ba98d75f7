"""The commands that read ledgers, and `deedbook fork`."""
