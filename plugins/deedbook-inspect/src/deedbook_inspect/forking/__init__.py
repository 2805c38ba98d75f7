"""Starting a session from a point in the past of another one."""
