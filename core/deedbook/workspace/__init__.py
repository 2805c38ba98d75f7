"""YAML and Markdown files with places, and the sections that they may hold. Start with `workspace.py`."""
