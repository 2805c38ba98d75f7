"""Commands for people who write and check a workspace: begin, list, lint, test, examine."""
