"""Charters kept in a state folder, bound to judge recorded calls again; plugins are imported only on request."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import attrs
import importlib_metadata

from deedbook.charter.judging import Trusts, bind_for_judging
from deedbook.charter.store import Store
from deedbook.format.errors import BindingError, DeedbookError, describe, fault
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.host import ReadingHost, hidden_folders
from deedbook.plugins.moves import Moves, read_moves
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.policy.bindings import Bindings
from deedbook.policy.charter import Charter

from .facts import FoldedFacts

KERNEL: Final = "deedbook"
CHARTER_MISSING: Final = "the charter that the session names is not at hand"
_LOCAL_CODES: Final = frozenset({"PLUGIN_MISSING", "PLUGIN_BROKEN", "NOT_AVAILABLE", "SECRET_MISSING"})
"""The codes for what is missing on this machine; any other code is a fault of the charter itself."""


@attrs.frozen
class InvalidCharter:
    """A kept charter that cannot judge any call: wrong bytes, or no charter at all; *why* is the reason."""

    why: str


def describe_unusable(problem: Exception) -> InvalidCharter | str:
    """Return why a charter cannot be used: a text if only this machine lacks something."""
    if isinstance(problem, DeedbookError):
        here = all(error.code in _LOCAL_CODES for error in problem.errors)
        return (
            f"the charter that the session names cannot be used here: {problem}"
            if here
            else InvalidCharter(str(problem))
        )
    return InvalidCharter(describe(problem))


class Charters:
    """The charters of a *state* folder, each bound once, on first use.

    *root* is the workspace. With *plugins*, gates of other plugins are also asked, if the installed plugin has the
    digest that the charter records.
    """

    def __init__(self, root: Folder, state: Folder, schemas: Schemas, *, plugins: bool) -> None:
        self._root, self._store, self._schemas = root, Store(state), schemas
        self._hidden = hidden_folders(Path(root.path), Path(state.path))
        self._plugins, self._moves = plugins, read_moves()
        self._catalogue: Catalogue = discover(None if plugins else _find_own_distributions(self._moves))
        self._bound: dict[str, Bindings | InvalidCharter | str] = {}

    def __call__(self, digest: str) -> Bindings | InvalidCharter | str:
        """Return a charter by its digest; a text says why it is not available here. Never raises."""
        if digest not in self._bound:
            self._bound[digest] = self._bind(digest)
        return self._bound[digest]

    def _bind(self, digest: str) -> Bindings | InvalidCharter | str:
        try:
            charter = self._store.find(digest)
            if charter is None:
                return CHARTER_MISSING
            charter.refuse_uncanonical()
            return self._bind_for_judging(charter)
        except Exception as problem:  # noqa: BLE001 - a charter may hold anything, and must not stop the other ledgers
            return describe_unusable(problem)

    def _bind_for_judging(self, charter: Charter) -> Bindings:
        host = ReadingHost(self._root, charter.document["file_roots"], self._hidden, {})
        bindings = bind_for_judging(charter, self._catalogue, host, self._schemas, self._build_trust_check(charter))
        features = {key.partition("/")[2] for key in charter.document["plugins"] if key.startswith(f"{FEATURE}/")}
        for name in sorted(bindings.reads - FoldedFacts().now().keys()):
            if name.partition(".")[0] in features:
                continue
            raise BindingError(fault("BINDING_INVALID", f"a gate reads {name!r}, which is no fact"))
        return bindings

    def _build_trust_check(self, charter: Charter) -> Trusts:
        """Return a check of which of the charter's plugins may be asked: Deedbook's own, and others if unchanged.

        Deedbook's own are those of the kernel, and those that moved out of it: a charter may name either home.
        """
        names = {id(entry): name for name, entry in charter.document["plugins"].items()}

        def trusts(plugin: Mapping[str, Any]) -> bool:
            key = names[id(plugin)]
            offer, move = self._catalogue.get(*key.split("/", 1)), self._moves.get(key)
            if offer is None or offer.version != plugin["version"]:
                return False
            if move and offer.distribution == move.new:
                return plugin["distribution"] in (move.old, move.new)
            if offer.distribution != plugin["distribution"]:
                return False
            unchanged = offer.digest is not None and offer.digest == plugin["digest"]
            return offer.distribution == KERNEL or (self._plugins and unchanged)

        return trusts


def _find_own_distributions(moved: Moves) -> Iterator[importlib_metadata.Distribution]:
    """Yield the kernel's distribution, and the installed distributions that its plugins moved to."""
    for name in sorted({KERNEL, *(move.new for move in moved.values())}):
        with suppress(importlib_metadata.PackageNotFoundError):
            yield importlib_metadata.Distribution.from_name(name)


@contextmanager
def open_charters(root: Path, state: Path, schemas: Schemas, *, plugins: bool) -> Iterator[Charters]:
    """Give the charters in the *state* folder of the workspace at *root*; raises `OSError`, `DeedbookError`.

    Without a workspace *root* is the folder that holds the state folder.
    """
    with Folder.at(root) as workspace, Folder.at(state) as folder:
        yield Charters(workspace, folder, schemas, plugins=plugins)
