"""The long-lived process: its sockets, who is at them, what they may ask, and how it ends."""
