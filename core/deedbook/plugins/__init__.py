"""Entry points, loaded and checked plugin classes, and the host that plugins receive. Start with `plugins.py`."""
