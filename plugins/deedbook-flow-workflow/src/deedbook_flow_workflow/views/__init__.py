"""Cycles for readers: as text, as a Mermaid diagram, and as one HTML page."""
