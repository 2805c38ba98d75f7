"""The commands `deedbook serve`, `bridge` and `tasks`."""
