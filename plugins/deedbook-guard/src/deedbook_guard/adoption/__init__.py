"""Declare the tools of a program from what its framework knows: ``deedbook adopt``."""
