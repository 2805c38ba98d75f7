"""What ledgers are checked by and said in beside `verify`: structure, heads, reports, older forms."""
