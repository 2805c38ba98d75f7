"""Tell people what waits for them."""
