"""Corrections of ledgers: events amended, sealed values erased, payloads excised."""
