"""Charters that a state folder keeps, bound to judge recorded calls again; no plugin is imported unasked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import importlib_metadata

from deedbook.bindings import Bindings
from deedbook.charter import Charter
from deedbook.errors import DeedbookError
from deedbook.files import Folder
from deedbook.host import ReadingHost
from deedbook.plugins import Catalogue, discover
from deedbook.schema import Schemas
from deedbook.store import Store
from deedbook.workspaces.site import Site

from .judging import Trusts, freeze_for_judging

KERNEL: Final = "deedbook"
NO_CHARTER: Final = "the charter that the session names is not at hand"


class Charters:
    """The charters of one workspace, each bound once, when it is first asked for.

    With *plugins* gates of plugins are asked, too, where what is installed has the digest that the charter has of it.
    """

    def __init__(self, site: Site, root: Folder, state: Folder, schemas: Schemas, *, plugins: bool) -> None:
        self._site, self._root, self._store, self._schemas = site, root, Store(state), schemas
        kernel = None if plugins else [importlib_metadata.Distribution.from_name(KERNEL)]
        self._catalogue: Catalogue = discover(kernel)
        self._bound: dict[str, Bindings | str] = {}

    def __call__(self, digest: str) -> Bindings | str:
        """Return a charter by its digest; a text says why it cannot be had."""
        if digest not in self._bound:
            self._bound[digest] = self._bind(digest)
        return self._bound[digest]

    def _bind(self, digest: str) -> Bindings | str:
        try:
            charter = self._store.find(digest)
            return NO_CHARTER if charter is None else self._frozen(charter)
        except (DeedbookError, OSError) as problem:
            return f"the charter that the session names cannot be used: {problem}"

    def _frozen(self, charter: Charter) -> Bindings:
        site = Site.under(charter.document, self._site.root, self._site.state)
        host = ReadingHost(self._root, site.file_roots, site.hidden, {})
        return freeze_for_judging(charter, self._catalogue, host, self._schemas, self._trusts(charter))

    def _trusts(self, charter: Charter) -> Trusts:
        """Return who of the charter's plugins is installed just as it was; the kernel's own code always speaks."""
        names = {id(entry): name for name, entry in charter.document["plugins"].items()}

        def trusts(plugin: Mapping[str, Any]) -> bool:
            offer = self._catalogue.offered(*names[id(plugin)].split("/", 1))
            if offer is None or (offer.distribution, offer.version) != (plugin["distribution"], plugin["version"]):
                return False
            return offer.distribution == KERNEL or (offer.digest is not None and offer.digest == plugin["digest"])

        return trusts


@contextmanager
def charters_of(site: Site, schemas: Schemas, *, plugins: bool) -> Iterator[Charters]:
    """Hold the charters that a workspace has kept; raises `OSError`, `DeedbookError` where a folder is not there."""
    with Folder.at(site.root) as root, Folder.at(site.state) as state:
        yield Charters(site, root, state, schemas, plugins=plugins)
