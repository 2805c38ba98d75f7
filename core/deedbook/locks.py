"""Which charter is in force: kept once per digest in the state folder, and pinned by ``.system/deedbook.lock``.

With ``lock: auto`` the state folder is a cache, trusted as far as the sources beside it are: what changed is compiled
anew, and said. With ``lock: required`` the lock file decides: a change is refused before any of its code is imported.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from . import canonical
from .changes import Difference, difference
from .charter import FORMAT, Charter, compile_charter, unavailable
from .declarations import Workspace
from .errors import BindingError, DeedbookError, DomainError, FileRefused, IntakeError, fault, raise_all
from .files import Folder
from .lockfile import LOCK, Lock, here
from .plugins import Catalogue

__all__ = ["LOCK", "Opened", "Store", "here", "lock", "open_charter"]

_MAX_BYTES: Final = 256 * 1024 * 1024
_LOSSLESS: Final = "surrogateescape"  # a skill that no loader reads may be any bytes
_CURRENT: Final = "charters/current.json"
_IS_DIGEST: Final = re.compile("[0-9a-f]{64}").fullmatch


@attrs.frozen
class Opened:
    """The charter in force, the one before it (a digest), and what changed between them."""

    charter: Charter
    previous: str | None
    changes: Difference


class Store:
    """Charters and their sources, kept once per digest in the state folder."""

    def __init__(self, state: Folder) -> None:
        self._state = state

    def load(self, digest: str) -> Charter:
        """Return the charter kept under *digest*; raises `BindingError` if its bytes are others, or it is not there."""
        found = self.find(digest)
        if found is None:
            raise BindingError(fault("CHARTER_CHANGED", f"charter {digest} is not kept in this state folder"))
        return found

    def find(self, digest: str) -> Charter | None:
        """Return the charter kept under *digest*, if it is there; raises `BindingError` if its bytes are others."""
        try:
            return Charter.from_bytes(self._read(digest, "charter"), digest)
        except FileNotFoundError:
            return None

    def sources(self, charter: Charter) -> Mapping[str, bytes]:
        """Return the sources that *charter* was compiled from, by path; raises `BindingError` if they are others."""
        try:
            kept = json.loads(self._read(charter.digest, "sources"))
            sources = {path: text.encode("utf-8", _LOSSLESS) for path, text in kept.items()}
        except (FileNotFoundError, ValueError, AttributeError):
            sources = {}
        if {path: canonical.digest(raw) for path, raw in sources.items()} != charter.document["sources"]:
            why = f"the sources kept with charter {charter.digest} are not what was kept"
            raise BindingError(fault("CHARTER_CHANGED", why))
        return sources

    def keep(self, charter: Charter, root: Folder) -> None:
        """Keep *charter* and the sources below *root* that it was compiled from; what is kept soundly stays.

        The charter is written last: where it is, all is. Raises `BindingError` if a source is not what was compiled.
        """
        try:
            self.load(charter.digest)
            self.sources(charter)
        except BindingError:
            sources = {path: _text(root, path, digest) for path, digest in charter.document["sources"].items()}
            self._state.replace(f"charters/{charter.digest}/sources.json", json.dumps(sources).encode())
            self._state.replace(f"charters/{charter.digest}/charter.json", charter.raw)

    def current(self) -> str | None:
        """Return the digest of the charter that was last in force, if that can be told."""
        try:
            found = canonical.parse(self._state.read(_CURRENT, limit=4096))
        except (FileNotFoundError, FileRefused, IntakeError):
            return None
        digest = found.get("charter") if isinstance(found, dict) else None
        return digest if isinstance(digest, str) and _IS_DIGEST(digest) else None

    def adopt(self, charter: Charter) -> None:
        """Remember *charter* as the one in force."""
        self._state.replace(_CURRENT, canonical.encode({"charter": charter.digest}))

    def _read(self, digest: str, name: str) -> bytes:
        return self._state.read(f"charters/{digest}/{name}.json", limit=_MAX_BYTES)


def open_charter(
    workspace: Workspace,
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
    previous = store.current()
    past = _Past.of(store, previous)
    if workspace.lock == "required":
        charter = _pinned(workspace, catalogue, store, root, kernel)
    elif past.charter and _is_fresh(past.charter, workspace, catalogue, root, kernel):
        charter = past.charter
    else:
        charter = compile_charter(workspace, catalogue, kernel=kernel)
        store.keep(charter, root)
    opened = Opened(charter, previous, past.compared_with(charter))
    if opened.changes and record:
        record(opened)
    if previous != charter.digest:
        store.adopt(charter)
    return opened


def lock(
    workspace: Workspace, catalogue: Catalogue, store: Store, root: Folder, *, kernel: str, editable: bool = False
) -> Opened:
    """Compile, pin in the lock file, and return what changed against the charter pinned before.

    With *editable*, distributions that are installed in place are named as such and accepted. The charter comes into
    force with the next start, which records it.
    """
    before = _before(root)
    charter = compile_charter(workspace, catalogue, kernel=kernel)
    if workspace.lock == "required" and not editable:
        raise_all(BindingError, dict.fromkeys(_in_place(charter)))
    store.keep(charter, root)
    Lock.of(charter.document, charter.digest, before, editable=editable).write(root)
    previous = (before.charters.get(here()) if before else None) or store.current()
    return Opened(charter, previous, _Past.of(store, previous).compared_with(charter))


@attrs.frozen
class _Past:
    """The charter that was in force before, as far as it is known: its *digest*, and *why* there is no *charter*."""

    digest: str | None
    charter: Charter | None = None
    why: str = ""

    @classmethod
    def of(cls, store: Store, digest: str | None) -> "_Past":
        try:
            return cls(digest, store.load(digest) if digest else None)
        except DeedbookError as problem:
            return cls(digest, None, str(problem))

    def compared_with(self, charter: Charter) -> Difference:
        if self.why:
            same = self.digest == charter.digest
            return Difference(other=(self.why,)) if same else Difference(looser=(f"{self.why}; nobody can compare",))
        if self.digest == charter.digest:
            return Difference()
        return difference(self.charter.document if self.charter else None, charter.document)


# --- freshness --------------------------------------------------------------------------------------------------------


def _is_fresh(kept: Charter, workspace: Workspace, catalogue: Catalogue, root: Folder, kernel: str) -> bool:
    """Say whether compiling again would give *kept*: nothing that it was made from has changed."""
    document = kept.document
    return (
        (document.get("format"), document.get("kernel")) == (FORMAT, kernel)
        and document["profile"] == workspace.profile
        and document["sources"] == dict(workspace.digests)
        and not unavailable(root)
        and all(_is_installed(key, entry, catalogue) for key, entry in document["plugins"].items())
    )


def _is_installed(key: str, entry: Mapping[str, Any], catalogue: Catalogue) -> bool:
    kind, _, name = key.partition("/")
    offer = catalogue.offers.get((kind, name))
    found = offer and (offer.distribution, offer.version, offer.target, offer.digest)
    wanted = (entry["distribution"], entry["version"], entry["target"], entry["digest"])
    return entry["digest"] is not None and found == wanted


def _pinned(workspace: Workspace, catalogue: Catalogue, store: Store, root: Folder, kernel: str) -> Charter:
    """Return the charter that the lock pins, if the workspace comes to it; else raise with everything that differs."""
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
        charter = compile_charter(workspace, catalogue, kernel=kernel, admit=pins.refuse_code)
    except BindingError as problem:
        raise BindingError(*faults, *problem.errors) from None
    raise_all(BindingError, faults or pins.refuse_charter(charter.digest))
    store.keep(charter, root)
    return charter


def _before(root: Folder) -> Lock | None:
    """Return the lock that is about to be replaced; a damaged one counts as none."""
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


def _text(root: Folder, path: str, digest: str) -> str:
    """Read a source again; raise `BindingError` if it is not what was compiled."""
    try:
        raw = root.read(path, limit=_MAX_BYTES)
    except FileNotFoundError:
        raw = b""
    if canonical.digest(raw) != digest:
        raise BindingError(fault("CHARTER_CHANGED", "changed while the charter was compiled; start again", place=path))
    return raw.decode("utf-8", _LOSSLESS)
