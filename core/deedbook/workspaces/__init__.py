"""The files of a workspace: found, read as YAML and Markdown with places, begun, and brought by packs."""
