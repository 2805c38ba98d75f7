"""Where a prompt may lead: abilities and sections of routing documents, ranked."""
