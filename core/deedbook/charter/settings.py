"""Checkpoint settings: `checkpoints:` in `deedbook.yaml`, as a charter holds it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

EVENTS: Final = 1000
SECONDS: Final = 60
BEFORE: Final = ("irreversible",)


@attrs.frozen
class CheckpointSettings:
    """When checkpoints are written, with which key, which keys are trusted, and which witnesses sign.

    *key* is the file of the private key, if it is not in the user's key ring; *keys* are verifier keys; *before* are
    the effects that need a checkpoint of their intent first. *witnesses* are the declared entries, with keys, and
    folders resolved from the root.
    """

    key: Path | None = None
    keys: tuple[str, ...] = ()
    every_events: int = EVENTS
    every_seconds: float = SECONDS
    before: frozenset[str] = frozenset(BEFORE)
    witnesses: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def read(cls, section: Mapping[str, Any], root: Path) -> Self:
        """Read the section of a charter, or of a workspace at *root*; missing keys get their defaults."""
        key = section.get("key")
        return cls(
            key=root / Path(key).expanduser() if key else None,
            keys=tuple(section.get("keys", ())),
            every_events=section.get("every_events", EVENTS),
            every_seconds=section.get("every_seconds", SECONDS),
            before=frozenset(section.get("before", BEFORE)),
            witnesses=tuple(_witness(each, root) for each in section.get("witnesses", ())),
        )


def _witness(entry: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    return {**entry, "folder": str(root / Path(entry["folder"]).expanduser())} if entry.get("folder") else entry
