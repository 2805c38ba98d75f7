"""The long-lived process: sockets, tasks, the bridge for coding agents, working documents."""
