"""Uses of abilities that are made first and run later, kept in the workspace ledger."""
