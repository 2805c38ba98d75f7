"""The commands `deedbook freeze`, `thaw` and `notify`."""
