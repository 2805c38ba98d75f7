"""Entry points to loaded, checked classes, and the host that plugins are given. Start with `plugins.py`."""
