"""Tools for Deedbook: `echo`, and files that are reached through the host alone."""
