"""The server: its sockets, its clients, their requests, and how it ends."""
