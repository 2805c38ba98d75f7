"""Commands for people who write, ship and upgrade packs: lint, test, build, diff, list."""
