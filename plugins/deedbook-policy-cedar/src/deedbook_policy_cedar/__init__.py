"""The policy kind ``cedar`` for Deedbook: policies in the Cedar language (`kind`)."""

__version__ = "0.1.0"
