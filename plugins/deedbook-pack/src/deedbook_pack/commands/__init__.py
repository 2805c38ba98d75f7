"""The command, whose modules are imported when a subcommand is called."""
