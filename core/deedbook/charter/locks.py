"""Which charter is in force: kept once per digest in the state folder, and pinned by ``.system/deedbook.lock``.

With ``lock: auto`` the state folder is a cache. A kept charter counts only if this user's key or the lock file vouches
for its digest and nothing that it was compiled from has changed; otherwise the sources are compiled again. With ``lock:
required`` the lock file decides: a change is refused before any of its code is imported.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from deedbook.format.errors import BindingError, DeedbookError, DomainError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.moves import moves
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.charter import FORMAT, Charter, known_files
from deedbook.workspace import inventory
from deedbook.workspace.lockfile import LOCK, Lock, here

from .changes import Difference, difference
from .store import Start, Store

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace

__all__ = [
    "LOCK",
    "Opened",
    "Store",
    "enforce",
    "here",
    "in_force",
    "is_superseded",
    "kept_charter",
    "lock",
    "open_charter",
]


@attrs.frozen
class Opened:
    """The charter in force, the one before it (a digest), and what changed between them."""

    charter: Charter
    previous: str | None
    changes: Difference


def open_charter(
    workspace: "Workspace",
    catalogue: Catalogue,
    store: Store,
    root: Folder,
    *,
    kernel: str,
    record: Callable[[Opened], None] | None = None,
) -> Opened:
    """Return the charter in force, compiled only where something changed.

    *record* is told of a change before the store remembers it, so that no crash loses it; it may be told twice. With
    ``lock: required`` a change is refused (`BindingError`, ``CHARTER_CHANGED``) until `lock`.
    """
    from .compiler import compile_charter

    past = _Past.of(store, store.current())
    if workspace.lock == "required":
        charter = _pinned(workspace, catalogue, store, root, kernel)
    elif (
        past.charter
        and _is_trusted(past.charter, store, root)
        and _is_fresh(past.charter, workspace, catalogue, root, kernel)
    ):
        charter = past.charter
    else:
        charter = compile_charter(workspace, catalogue, kernel=kernel, known=past.scripts)
        store.keep(charter, root)
    return enforce(charter, store, record, past)


def enforce(
    charter: Charter, store: Store, record: Callable[[Opened], None] | None, past: "_Past | None" = None
) -> Opened:
    """Put *charter* into force: say what changed against the one before, record it, and remember it.

    Where the user's key does not authenticate which charter was in force before, the charter is recorded in any case:
    somebody else may have written that record, to keep this one out of the ledger.
    """
    previous = store.current()
    if past is None:
        past = _Past(previous, charter) if previous == charter.digest else _Past.of(store, previous)
    opened = Opened(charter, previous, past.compared_with(charter))
    known = previous == charter.digest and (store.key.secret is None or store.authenticates(charter.digest))
    if record and (opened.changes or not known):
        record(opened)
    if not known:
        store.adopt(charter)
    return opened


def kept_charter(store: Store, start: Start, root: Folder, catalogue: Catalogue, *, kernel: str) -> Charter | None:
    """Return the charter that *start* came to, if nothing has changed since: no source is read but for its digest.

    *start* is authentic (`Store.start`): its charter was compiled from what the charter names as its sources. ``None``
    where anything is new, other or gone, or where the lock does not pin it: then the sources have to be read.
    """
    if inventory.listing(root, start.folders) != start.listing:
        return None
    try:
        charter = store.find(start.charter, authentic=True)
        stands = charter is not None and (
            (charter.document.get("format"), charter.document.get("kernel")) == (FORMAT, kernel)
            and inventory.unchanged(root, charter.document["sources"])
            and _are_installed(charter.document, catalogue)
            and (charter.document["lock"] != "required" or _is_pinned(charter, root))
        )
    except BindingError:
        return None
    return charter if stands else None


def in_force(
    digest: str, workspace: "Workspace", catalogue: Catalogue, root: Folder, store: Store, kernel: str
) -> Charter | None:
    """Return the charter kept under *digest* if *workspace* still comes to it; constructs no plugin.

    Raises `DeedbookError` where the sources do not compile, or what is kept are other bytes.
    """
    from .compiler import compile_charter

    kept = store.find(digest)
    if kept is None:
        return None
    if _is_trusted(kept, store, root) and _is_fresh(kept, workspace, catalogue, root, kernel):
        return kept
    now = compile_charter(workspace, catalogue, kernel=kernel)
    return kept if now.digest == digest else None


def is_superseded(
    digest: str, workspace: "Workspace", catalogue: Catalogue, root: Folder, store: Store, kernel: str
) -> bool:
    """Say whether *workspace* certainly comes to another charter than *digest*; imports no plugin, compiles nothing.

    ``False`` where only compiling can tell: the code of a plugin that is installed in place may have changed.
    """
    try:
        kept = store.find(digest)
    except BindingError:
        return True
    if kept is None or not _has_the_same_sources(kept, workspace, root, kernel):
        return True
    return any(_is_replaced(key, entry, catalogue) for key, entry in kept.document["plugins"].items())


def lock(
    workspace: "Workspace", catalogue: Catalogue, store: Store, root: Folder, *, kernel: str, editable: bool = False
) -> Opened:
    """Compile, pin in the lock file, and return what changed against the charter pinned before.

    With *editable*, distributions that are installed in place are named as such and accepted. The charter comes into
    force with the next start, which records it.
    """
    from .compiler import compile_charter

    before = _before(root)
    previous = (before.charters.get(here()) if before else None) or store.current()
    past = _Past.of(store, previous)
    charter = compile_charter(workspace, catalogue, kernel=kernel, known=past.scripts)
    if workspace.lock == "required" and not editable:
        raise_all(BindingError, dict.fromkeys(_in_place(charter)))
    store.keep(charter, root)
    Lock.of(charter.document, charter.digest, before, editable=editable).write(root)
    return Opened(charter, previous, past.compared_with(charter))


@attrs.frozen
class _Past:
    """The charter that was in force before, as far as it is known: its *digest*, and *why* there is no *charter*."""

    digest: str | None
    charter: Charter | None = None
    why: str = ""

    @classmethod
    def of(cls, store: Store, digest: str | None) -> "_Past":
        try:
            charter = store.load(digest) if digest else None
            if charter:
                charter.refuse_uncanonical()  # what cannot be encoded cannot be compared
            return cls(digest, charter)
        except DeedbookError as problem:
            return cls(digest, None, str(problem))

    @property
    def scripts(self) -> frozenset[str]:
        """The files that were scripts in it."""
        return known_files(self.charter.document) if self.charter else frozenset()

    def compared_with(self, charter: Charter) -> Difference:
        if self.why:
            same = self.digest == charter.digest
            return Difference(other=(self.why,)) if same else Difference(looser=(f"{self.why}; nobody can compare",))
        if self.digest == charter.digest:
            return Difference()
        return difference(self.charter.document if self.charter else None, charter.document, moves())


# --- freshness --------------------------------------------------------------------------------------------------------


def _is_fresh(kept: Charter, workspace: "Workspace", catalogue: Catalogue, root: Folder, kernel: str) -> bool:
    """Say whether compiling again would give *kept*: nothing that it was made from has changed."""
    return _has_the_same_sources(kept, workspace, root, kernel) and _are_installed(kept.document, catalogue)


def _has_the_same_sources(kept: Charter, workspace: "Workspace", root: Folder, kernel: str) -> bool:
    from .compiler import unavailable

    document = kept.document
    return (
        (document.get("format"), document.get("kernel")) == (FORMAT, kernel)
        and document["profile"] == workspace.profile
        and document["sources"] == dict(workspace.digests)
        and not unavailable(root)
    )


def _is_trusted(kept: Charter, store: Store, root: Folder) -> bool:
    """Return whether *kept* is known to follow from the sources that it names; its digest alone does not show that."""
    if store.authenticates(kept.digest):
        return True
    pins = _before(root)
    return pins is not None and pins.charters.get(here()) == kept.digest


def _is_pinned(charter: Charter, root: Folder) -> bool:
    pins = Lock.read(root)
    return pins is not None and pins.charters.get(here()) == charter.digest


def _are_installed(document: Mapping[str, Any], catalogue: Catalogue) -> bool:
    return all(_is_installed(key, entry, catalogue) for key, entry in document["plugins"].items())


def _is_replaced(key: str, entry: Mapping[str, Any], catalogue: Catalogue) -> bool:
    """Say whether another plugin is installed than the one of *entry*, as far as digests tell it."""
    kind, _, name = key.partition("/")
    offer = catalogue.offered(kind, name)
    digest = offer.digest if offer else None
    return offer is None or (None not in (digest, entry["digest"]) and not _is_installed(key, entry, catalogue))


def _is_installed(key: str, entry: Mapping[str, Any], catalogue: Catalogue) -> bool:
    kind, _, name = key.partition("/")
    offer = catalogue.offered(kind, name)
    found = offer and (offer.distribution, offer.version, offer.target, offer.digest)
    wanted = (entry["distribution"], entry["version"], entry["target"], entry["digest"])
    return entry["digest"] is not None and found == wanted


def _pinned(workspace: "Workspace", catalogue: Catalogue, store: Store, root: Folder, kernel: str) -> Charter:
    """Return the charter that the lock pins, if the workspace comes to it; else raise with everything that differs."""
    from .compiler import compile_charter

    pins = Lock.read(root)
    if pins is None:
        why = "lock: required, and nothing is pinned; run: deedbook lock"
        raise BindingError(fault("CHARTER_CHANGED", why, place=LOCK))
    faults = list(pins.refuse_sources(workspace.digests, profile=workspace.profile, kernel=kernel))
    try:
        pinned = pins.charters.get(here())
        kept = store.find(pinned) if pinned else None
        if kept and not faults and _is_fresh(kept, workspace, catalogue, root, kernel):
            return kept
        known = known_files(kept.document) if kept else ()
        charter = compile_charter(workspace, catalogue, kernel=kernel, admit=pins.refuse_code, known=known)
    except BindingError as problem:
        raise BindingError(*faults, *problem.errors) from None
    raise_all(BindingError, faults or pins.refuse_charter(charter.digest))
    store.keep(charter, root)
    return charter


def _before(root: Folder) -> Lock | None:
    """Return the lock file as it stands; a damaged one counts as none."""
    try:
        return Lock.read(root)
    except BindingError:
        return None


def _in_place(charter: Charter) -> list[DomainError]:
    why = "is installed in place, which lock: required refuses; install its wheel, or run: deedbook lock --editable"
    return [
        fault("CHARTER_CHANGED", f"{entry['distribution']} {why}", place=LOCK)
        for entry in charter.document["plugins"].values()
        if entry["digest"] is None
    ]
