"""The commands `approvals` and `keys`."""
