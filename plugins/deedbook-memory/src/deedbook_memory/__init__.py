"""Memory between sessions: zones, proposals, grounds, and the fold of the workspace ledger."""
