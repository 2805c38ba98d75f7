"""YAML and Markdown files with source positions, and the sections that they may hold. Start with `workspace.py`."""
