"""The commands `deedbook prove`, `witness`, `keys rotate`, and those of `deedbook ledger`."""
