"""What runs as a program or on a thread of its own: scripts, workers, and hooks that stand elsewhere."""
