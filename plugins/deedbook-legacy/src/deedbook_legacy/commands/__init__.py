"""The command `deedbook ledger import`."""
