"""The commands `deedbook prove`, `deedbook witness` and `deedbook ledger checkpoint`."""
