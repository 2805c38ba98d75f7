"""Data of a pack for Deedbook, which is never imported."""
