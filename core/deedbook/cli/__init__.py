"""The command `deedbook`, and the commands of the kernel. Start with `program.py`."""
