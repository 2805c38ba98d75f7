"""Charters that a state folder keeps, bound to judge recorded calls again; no plugin is imported unasked."""

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
from deedbook.plugins.host import ReadingHost, hidden_folders
from deedbook.plugins.moves import Moves, read_moves
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.policy.bindings import Bindings
from deedbook.policy.charter import Charter

from .facts import FoldedFacts

KERNEL: Final = "deedbook"
NO_CHARTER: Final = "the charter that the session names is not at hand"
_HERE: Final = frozenset({"PLUGIN_MISSING", "PLUGIN_BROKEN", "NOT_AVAILABLE", "SECRET_MISSING"})
"""The codes of what is missing on this machine; anything else is wrong with the charter itself."""


@attrs.frozen
class Invalid:
    """A charter that is kept, and from which no call can be judged: other bytes, or no charter; *why* in words."""

    why: str


def judge_fault(problem: Exception) -> Invalid | str:
    """Return why a charter cannot be judged by: a text where only this machine lacks something."""
    if isinstance(problem, DeedbookError):
        here = all(error.code in _HERE for error in problem.errors)
        return f"the charter that the session names cannot be used here: {problem}" if here else Invalid(str(problem))
    return Invalid(describe(problem))


class Charters:
    """The charters that a *state* folder keeps, each bound once, when it is first asked for.

    *root* is the workspace. With *plugins* gates of other plugins are asked, too, where what is installed has the
    digest that the charter has of it.
    """

    def __init__(self, root: Folder, state: Folder, schemas: Schemas, *, plugins: bool) -> None:
        self._root, self._store, self._schemas = root, Store(state), schemas
        self._hidden = hidden_folders(Path(root.path), Path(state.path))
        self._plugins, self._moves = plugins, read_moves()
        self._catalogue: Catalogue = discover(None if plugins else _own(self._moves))
        self._bound: dict[str, Bindings | Invalid | str] = {}

    def __call__(self, digest: str) -> Bindings | Invalid | str:
        """Return a charter by its digest; a text says why it cannot be had here. Whatever it holds, never raises."""
        if digest not in self._bound:
            self._bound[digest] = self._bind(digest)
        return self._bound[digest]

    def _bind(self, digest: str) -> Bindings | Invalid | str:
        try:
            charter = self._store.find(digest)
            if charter is None:
                return NO_CHARTER
            charter.refuse_uncanonical()
            return self._frozen(charter)
        except Exception as problem:  # noqa: BLE001 - it may hold anything, and hides nothing of the other ledgers
            return judge_fault(problem)

    def _frozen(self, charter: Charter) -> Bindings:
        host = ReadingHost(self._root, charter.document["file_roots"], self._hidden, {})
        bindings = bind_for_judging(charter, self._catalogue, host, self._schemas, self._trusts(charter))
        for name in sorted(bindings.reads - FoldedFacts().now().keys()):
            raise BindingError(fault("BINDING_INVALID", f"a gate reads {name!r}, which is no fact"))
        return bindings

    def _trusts(self, charter: Charter) -> Trusts:
        """Return which of the charter's plugins may be asked: Deedbook's own always, others if they are unchanged.

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


def _own(moved: Moves) -> Iterator[importlib_metadata.Distribution]:
    """Yield the kernel's distribution, and those that some of its plugins moved to, where they are installed."""
    for name in sorted({KERNEL, *(move.new for move in moved.values())}):
        with suppress(importlib_metadata.PackageNotFoundError):
            yield importlib_metadata.Distribution.from_name(name)


@contextmanager
def charters_of(root: Path, state: Path, schemas: Schemas, *, plugins: bool) -> Iterator[Charters]:
    """Hold the charters that the workspace at *root* has kept in its *state* folder; raises `OSError`, `DeedbookError`.

    Without a workspace *root* is the folder that holds the state folder.
    """
    with Folder.at(root) as workspace, Folder.at(state) as folder:
        yield Charters(workspace, folder, schemas, plugins=plugins)
