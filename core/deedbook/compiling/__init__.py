"""From what a workspace's files declare to what its charter says, every fault collected."""
