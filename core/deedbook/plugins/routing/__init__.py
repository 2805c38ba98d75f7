"""Rank targets for a prompt without a model: skills, abilities and sections of routing documents."""
