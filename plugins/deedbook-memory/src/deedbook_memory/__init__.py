"""Memory between sessions: zones, proposals, their grounds, and the fold of the workspace ledger."""
