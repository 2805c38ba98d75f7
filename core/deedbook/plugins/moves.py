"""Plugins that moved from one first-party distribution to another: ``known/moved.json``.

Charters and lock files that were made before name the old distribution. A moved plugin is the same code: it is judged
by as before, and a start says that it moved.
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from deedbook.format import canonical
from deedbook.format.schema import data_folder


@attrs.frozen
class Move:
    """A plugin was offered by the distribution *old*, and is now offered by *new*."""

    old: str
    new: str


Moves: TypeAlias = Mapping[str, Move]
"""By kind and name, such as ``policy/rules``."""


def moves() -> Moves:
    """Return every plugin that moved."""
    known = canonical.decode((data_folder("known") / "moved.json").read_bytes())
    return {key: Move(move["from"], move["to"]) for key, move in known.items()}
