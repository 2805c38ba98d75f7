"""The only writers: journal, chain, session and workspace ledgers, recovery. Start with `ledger.py`."""
