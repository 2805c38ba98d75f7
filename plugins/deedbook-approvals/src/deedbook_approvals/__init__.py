"""Answer requests, perform what was approved, and the commands `approvals` and `keys`."""
