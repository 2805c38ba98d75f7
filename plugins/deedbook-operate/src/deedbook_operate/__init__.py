"""For the operator of a workspace: `deedbook freeze`, `deedbook thaw` and `deedbook notify`."""
