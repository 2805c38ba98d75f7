"""Plugins that moved from one first-party distribution to another: ``known/moved.json``.

Older charters and lock files name the old distribution. A moved plugin is the same code: it judges as before, and a
start reports the move.
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from deedbook.format import canonical
from deedbook.format.schema import data_folder


@attrs.frozen
class PluginMove:
    """A plugin moved from the distribution *old* to the distribution *new*."""

    old: str
    new: str


Moves: TypeAlias = Mapping[str, PluginMove]
"""By kind and name, such as ``policy/rules``."""


def read_moves() -> Moves:
    """Return every plugin that moved."""
    known = canonical.decode((data_folder("known") / "moved.json").read_bytes())
    return {key: PluginMove(move["from"], move["to"]) for key, move in known.items()}
