"""A session told again from its ledger, for people: as a fold, and as a page that stands by itself."""
