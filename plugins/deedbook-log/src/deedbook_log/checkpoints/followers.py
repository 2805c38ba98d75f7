"""The followers of checkpoints, called after each is durable: the witnesses that the workspace names."""

from collections.abc import Callable
from typing import TypeAlias

from deedbook.charter.settings import CheckpointSettings
from deedbook.format.files import Folder
from deedbook.ledger.ledger import WorkspaceLedger

from .writer import NewCheckpoint

Follower: TypeAlias = Callable[[NewCheckpoint], None]
"""Is called on a thread of its own with the newest checkpoint; those in between may be passed over. What it raises
(`DeedbookError`, `OSError`) is said and harms nothing."""


def list_followers(settings: CheckpointSettings, state: Folder, ledger: WorkspaceLedger) -> tuple[Follower, ...]:
    """Return the followers for a process that writes the workspace's *ledger* in *state*."""
    if not settings.witnesses:
        return ()
    from deedbook_audit.submission import WitnessClient  # noqa: PLC0415 - few workspaces name a witness

    from .attestation import Attestation, Leaves  # noqa: PLC0415

    leaves = Leaves(ledger)
    parties = [WitnessClient.read(each) for each in settings.witnesses]
    return tuple(Attestation(party, state, ledger, leaves) for party in parties)
