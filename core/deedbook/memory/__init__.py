"""What is remembered from session to session: zones, proposals, grounds, and the fold of the workspace ledger."""
