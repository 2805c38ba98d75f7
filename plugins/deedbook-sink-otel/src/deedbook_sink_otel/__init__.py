"""What Deedbook's ledgers hold, as OpenTelemetry spans."""
