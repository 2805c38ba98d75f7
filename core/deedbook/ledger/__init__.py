"""The only writers of ledgers: journal, chain, session and workspace ledgers, recovery. Start with `ledger.py`."""
