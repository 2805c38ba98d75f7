"""Tasks: uses of abilities that are created first and run later, recorded in the workspace ledger."""
