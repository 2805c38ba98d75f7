"""A Deedbook feature that books the time of each session on a project."""
