"""Where the runner and the processes of agents meet."""

from typing import Final

INBOX: Final = "shared/inbox"
"""The folder of all inboxes, below the folder of the pipeline."""
