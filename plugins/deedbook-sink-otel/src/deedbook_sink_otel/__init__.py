"""Exports Deedbook's ledgers as OpenTelemetry spans."""
