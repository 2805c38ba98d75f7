"""The policy kind `rules`: rules, their conditions in CEL, and their tests."""
