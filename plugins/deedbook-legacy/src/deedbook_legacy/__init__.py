"""Taking in ledgers of older forms: the bytes are kept as they were, and the workspace ledger tells of them."""
