"""Which charter is in force: stored once per digest in the state folder, and pinned by ``.system/deedbook.lock``.

With ``lock: auto`` the state folder is a cache. A stored charter counts only if this user's key or the lock file
authenticates its digest and none of its sources has changed; otherwise the sources are compiled again. With ``lock:
required`` the lock file decides: a change is refused before any of its code is imported.
"""

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from deedbook.format.errors import BindingError, DeedbookError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import Catalogue
from deedbook.policy.charter import DEFAULT, FORMAT, Charter, script_files
from deedbook.workspace import inventory

from .difference import Difference
from .store import StartRecord, Store

if TYPE_CHECKING:
    from deedbook.workspace.declarations import Workspace
    from deedbook.workspace.lockfile import Lock

__all__ = [
    "ActiveCharter",
    "PreviousCharter",
    "Store",
    "choose_charter",
    "enforce",
    "find_current",
    "find_unchanged",
    "is_superseded",
    "read_lock",
]


@attrs.frozen
class ActiveCharter:
    """The charter in force, the digest of the previous one, and what changed between them."""

    charter: Charter
    previous: str | None
    changes: Difference


def choose_charter(workspace: "Workspace", catalogue: Catalogue, store: Store, root: Folder, *, kernel: str) -> Charter:
    """Return the charter of *workspace*, compiled only where something changed; stores nothing.

    With ``lock: required`` a change is refused (`BindingError`, ``CHARTER_CHANGED``) until `lock`.
    """
    from .compiler import compile_charter

    if workspace.lock == "required":
        return _choose_pinned(workspace, catalogue, store, root, kernel)
    past = PreviousCharter.of(store, store.current())
    kept = past.charter
    if kept and _is_trusted(kept, store, root) and _is_fresh(kept, workspace, catalogue, kernel):
        return kept
    return compile_charter(workspace, catalogue, kernel=kernel, known=past.scripts)


def enforce(
    charter: Charter, store: Store, root: Folder | None, record: Callable[[ActiveCharter], None] | None = None
) -> ActiveCharter:
    """Put *charter* into force: compare it with the previous one, record the change, and save it as current.

    It is stored with its sources below *root*; ``None``: both are known to be stored.
    *record* receives a change before the store saves it, so that no crash loses it; it may receive one change twice.
    Where the user's key does not authenticate the record of the previous charter, *charter* is always recorded: another
    user may have written that record to keep it out of the ledger.
    """
    previous = store.current()
    stored = root is None and previous == charter.digest
    past = PreviousCharter(previous, charter) if stored else PreviousCharter.of(store, previous)
    if root is not None:
        store.keep(charter, root)
    opened = ActiveCharter(charter, previous, past.compare(charter))
    known = previous == charter.digest and (store.key.secret is None or store.authenticates(charter.digest))
    if record and (opened.changes or not known):
        record(opened)
    if not known:
        store.adopt(charter)
    return opened


def find_unchanged(
    store: Store, start: StartRecord, root: Folder, catalogue: Catalogue, *, kernel: str
) -> Charter | None:
    """Return the charter of *start*, if nothing has changed since then; sources are only hashed.

    *start* is authentic (`Store.start`): its charter was compiled from the sources that the charter names. Returns
    ``None`` where anything was added, changed or removed, or where the lock does not pin the charter. Then the sources
    must be read.
    """
    if inventory.digest_names(root, start.folders) != start.listing:
        return None
    try:
        charter = store.find(start.charter, authentic=True)
        stands = charter is not None and (
            _has_the_same_form(charter.document, kernel)
            and inventory.is_unchanged(root, charter.document["sources"])
            and _are_installed(charter.document, catalogue)
            and (charter.document["lock"] != "required" or _is_pinned(charter, root))
        )
    except BindingError:
        return None
    return charter if stands else None


def find_current(
    digest: str, workspace: "Workspace", catalogue: Catalogue, root: Folder, store: Store, kernel: str
) -> Charter | None:
    """Return the charter stored under *digest* if *workspace* still compiles to it; constructs no plugin.

    Raises `DeedbookError` where the sources do not compile, or the stored bytes do not match.
    """
    from .compiler import compile_charter

    kept = store.find(digest)
    if kept is None:
        return None
    if _is_trusted(kept, store, root) and _is_fresh(kept, workspace, catalogue, kernel):
        return kept
    now = compile_charter(workspace, catalogue, kernel=kernel)
    return kept if now.digest == digest else None


def is_superseded(digest: str, workspace: "Workspace", catalogue: Catalogue, store: Store, kernel: str) -> bool:
    """Return whether *workspace* certainly compiles to another charter than *digest*; imports no plugin.

    ``False`` where only compiling can tell: the code of a plugin that is installed in place may have changed.
    """
    try:
        kept = store.find(digest)
    except BindingError:
        return True
    if kept is None or not _has_the_same_sources(kept, workspace, kernel):
        return True
    plugins = kept.document["plugins"]
    return not _has_standing(plugins, catalogue) or any(
        _is_replaced(key, entry, catalogue) for key, entry in plugins.items()
    )


@attrs.frozen
class PreviousCharter:
    """The charter that was in force before, as far as it is known: its *digest*, and *why* there is no *charter*."""

    digest: str | None
    charter: Charter | None = None
    why: str = ""

    @classmethod
    def of(cls, store: Store, digest: str | None) -> "PreviousCharter":
        """Load the charter *digest* from the *store*, if that can be done."""
        try:
            charter = store.load(digest) if digest else None
            if charter:
                charter.refuse_uncanonical()  # what cannot be encoded cannot be compared
            return cls(digest, charter)
        except DeedbookError as problem:
            return cls(digest, None, str(problem))

    @property
    def scripts(self) -> frozenset[str]:
        """The files of its scripts."""
        return script_files(self.charter.document) if self.charter else frozenset()

    def compare(self, charter: Charter) -> Difference:
        """Return what *charter* changes."""
        if self.why:
            same = self.digest == charter.digest
            return Difference(other=(self.why,)) if same else Difference(looser=(f"{self.why}; it cannot be compared",))
        if self.digest == charter.digest:
            return Difference()
        from deedbook.plugins.moves import read_moves

        from .changes import compare

        return compare(self.charter.document if self.charter else None, charter.document, read_moves())


# --- freshness --------------------------------------------------------------------------------------------------------


def _is_fresh(kept: Charter, workspace: "Workspace", catalogue: Catalogue, kernel: str) -> bool:
    """Return whether compiling again would give *kept*: none of its inputs has changed."""
    return _has_the_same_sources(kept, workspace, kernel) and _are_installed(kept.document, catalogue)


def _has_the_same_sources(kept: Charter, workspace: "Workspace", kernel: str) -> bool:
    document = kept.document
    return (
        _has_the_same_form(document, kernel)
        and document["profile"] == workspace.profile
        and document["sources"] == dict(workspace.digests)
    )


def _has_the_same_form(document: Mapping[str, Any], kernel: str) -> bool:
    """Return whether this kernel compiled *document*, by the rules of now (an older charter has no ``default``)."""
    return (document.get("format"), document.get("kernel")) == (FORMAT, kernel) and DEFAULT in document


def _is_trusted(kept: Charter, store: Store, root: Folder) -> bool:
    """Return whether *kept* is known to follow from its sources; its digest alone does not show that."""
    if store.authenticates(kept.digest):
        return True
    from deedbook.workspace.lockfile import current_platform

    pins = read_lock(root)
    return pins is not None and pins.charters.get(current_platform()) == kept.digest


def _is_pinned(charter: Charter, root: Folder) -> bool:
    from deedbook.workspace.lockfile import Lock, current_platform

    pins = Lock.read(root)
    return pins is not None and pins.charters.get(current_platform()) == charter.digest


def _are_installed(document: Mapping[str, Any], catalogue: Catalogue) -> bool:
    plugins = document["plugins"]
    return _has_standing(plugins, catalogue) and all(
        _is_installed(key, entry, catalogue) for key, entry in plugins.items()
    )


def _has_standing(plugins: Container[str], catalogue: Catalogue) -> bool:
    """Return whether every standing feature that is installed is among *plugins*."""
    from deedbook.plugins.standing import installed_standing

    return all(f"{FEATURE}/{name}" in plugins for name in installed_standing(catalogue))


def _is_replaced(key: str, entry: Mapping[str, Any], catalogue: Catalogue) -> bool:
    """Return whether another plugin is installed than the one of *entry*, as far as digests show it."""
    kind, _, name = key.partition("/")
    offer = catalogue.get(kind, name)
    digest = offer.digest if offer else None
    return offer is None or (None not in (digest, entry["digest"]) and not _is_installed(key, entry, catalogue))


def _is_installed(key: str, entry: Mapping[str, Any], catalogue: Catalogue) -> bool:
    kind, _, name = key.partition("/")
    offer = catalogue.get(kind, name)
    found = offer and (offer.distribution, offer.version, offer.target, offer.digest)
    wanted = (entry["distribution"], entry["version"], entry["target"], entry["digest"])
    return entry["digest"] is not None and found == wanted


def _choose_pinned(workspace: "Workspace", catalogue: Catalogue, store: Store, root: Folder, kernel: str) -> Charter:
    """Return the charter that the lock pins, if the workspace compiles to it; otherwise raise every difference."""
    from deedbook.workspace.lockfile import LOCK, Lock, current_platform

    from .compiler import compile_charter

    pins = Lock.read(root)
    if pins is None:
        why = "lock: required, and nothing is pinned; run: deedbook lock"
        raise BindingError(fault("CHARTER_CHANGED", why, place=LOCK))
    faults = list(pins.refuse_sources(workspace.digests, profile=workspace.profile, kernel=kernel))
    try:
        pinned = pins.charters.get(current_platform())
        kept = store.find(pinned) if pinned else None
        if kept and not faults and _is_fresh(kept, workspace, catalogue, kernel):
            return kept
        known = script_files(kept.document) if kept else ()
        charter = compile_charter(workspace, catalogue, kernel=kernel, admit=pins.refuse_code, known=known)
    except BindingError as problem:
        raise BindingError(*faults, *problem.errors) from None
    raise_all(BindingError, faults or pins.refuse_charter(charter.digest))
    return charter


def read_lock(root: Folder) -> "Lock | None":
    """Return the lock file; a damaged one counts as none."""
    from deedbook.workspace.lockfile import Lock

    try:
        return Lock.read(root)
    except BindingError:
        return None
