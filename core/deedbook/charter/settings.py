"""What a workspace says of its log: `checkpoints:` in `deedbook.yaml`, as the charter has it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

EVENTS: Final = 1000
SECONDS: Final = 60
BEFORE: Final = ("irreversible",)


@attrs.frozen
class Settings:
    """When checkpoints are written, with which key, whose public halves are trusted, and who else is asked to sign.

    *key* is the file of the private key, if it is not in the user's key ring; *keys* are verifier keys; *before* are
    the effects before which a checkpoint covers the intent. *witnesses* are as they were declared, with their keys and
    their folders, from the root.
    """

    key: Path | None = None
    keys: tuple[str, ...] = ()
    every_events: int = EVENTS
    every_seconds: float = SECONDS
    before: frozenset[str] = frozenset(BEFORE)
    witnesses: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def read(cls, said: Mapping[str, Any], root: Path) -> Self:
        """Read the section of a charter, or of a workspace, whose root is *root*; what is not said is as usual."""
        key = said.get("key")
        return cls(
            key=root / Path(key).expanduser() if key else None,
            keys=tuple(said.get("keys", ())),
            every_events=said.get("every_events", EVENTS),
            every_seconds=said.get("every_seconds", SECONDS),
            before=frozenset(said.get("before", BEFORE)),
            witnesses=tuple(_witness(each, root) for each in said.get("witnesses", ())),
        )


def _witness(said: Mapping[str, Any], root: Path) -> Mapping[str, Any]:
    return {**said, "folder": str(root / Path(said["folder"]).expanduser())} if said.get("folder") else said
