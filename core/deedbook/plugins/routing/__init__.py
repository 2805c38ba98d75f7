"""Where a prompt may lead: skills, abilities and sections of routing documents, ranked without a model."""
