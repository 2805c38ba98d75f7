"""Which charter is in force: kept once per digest in the state folder, and pinned by ``.system/deedbook.lock``."""

import platform
import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs

from . import canonical
from .changes import Difference, difference
from .charter import Charter, compile_charter
from .errors import BindingError, DomainError, fault, raise_all
from .files import Folder
from .plugins import Catalogue
from .declarations import Workspace

LOCK: Final = ".system/deedbook.lock"
_MAX_CHARTER: Final = 64 * 1024 * 1024
_MAX_SOURCE: Final = 1024 * 1024
_CURRENT: Final = "charters/current.json"


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
        try:
            raw = self._state.read(f"charters/{digest}/charter.json", limit=_MAX_CHARTER)
        except FileNotFoundError:
            raise BindingError(fault("CHARTER_CHANGED", f"charter {digest} is not kept in this state folder")) from None
        return Charter.from_bytes(raw, digest)

    def keep(self, charter: Charter, root: Folder) -> None:
        """Keep *charter* and the sources that it was compiled from; a second time does nothing."""
        place = f"charters/{charter.digest}"
        if self._state.exists(f"{place}/charter.json"):
            return
        for path in charter.document["sources"]:
            copy = f"{place}/sources/{path}"
            self._state.make(copy.rpartition("/")[0])
            self._state.replace(copy, root.read(path, limit=_MAX_SOURCE))
        self._state.make(place)
        self._state.replace(f"{place}/charter.json", charter.raw)

    def current(self) -> str | None:
        """Return the digest of the charter that was last in force."""
        try:
            found = canonical.parse(self._state.read(_CURRENT, limit=4096))
        except (FileNotFoundError, canonical.IntakeError):
            return None
        digest = found.get("charter") if isinstance(found, dict) else None
        return digest if isinstance(digest, str) else None

    def adopt(self, charter: Charter) -> None:
        """Remember *charter* as the one in force."""
        self._state.make("charters")
        self._state.replace(_CURRENT, canonical.encode({"charter": charter.digest}))


def open_charter(workspace: Workspace, catalogue: Catalogue, store: Store, root: Folder, *, kernel: str) -> Opened:
    """Return the charter in force, compiled only where something changed.

    With ``lock: required`` a change is refused (`BindingError`, ``CHARTER_CHANGED``) until `lock`.
    """
    previous = _kept(store)
    if previous is not None and _is_fresh(previous, workspace, catalogue, kernel):
        charter = previous
    else:
        charter = compile_charter(workspace, catalogue, kernel=kernel)
    if workspace.lock == "required":
        raise_all(BindingError, _unpinned(charter, workspace, root))
    opened = Opened(
        charter,
        previous.digest if previous else None,
        difference(previous.document if previous else None, charter.document),
    )
    store.keep(charter, root)
    if previous is None or previous.digest != charter.digest:
        store.adopt(charter)
    return opened


def lock(  # noqa: PLR0913 - what a lock is made from
    workspace: Workspace, catalogue: Catalogue, store: Store, root: Folder, *, kernel: str, editable: bool = False
) -> Opened:
    """Compile, pin in the lock file, and return what changed against the charter pinned before.

    With *editable*, distributions that are installed in place are named as such and accepted.
    """
    charter = compile_charter(workspace, catalogue, kernel=kernel)
    pins = read_lock(root)
    old = _pinned_charter(pins, store)
    plugins = _plugin_pins(charter, pins, editable=editable)
    store.keep(charter, root)
    store.adopt(charter)
    text = {
        "schema_version": "v1",
        "sources": charter.document["sources"],
        "charters": {**(pins.get("charters", {}) if _same_sources(pins, charter) else {}), here(): charter.digest},
        "plugins": plugins,
    }
    root.replace(LOCK, canonical.encode(text).replace(b'","', b'",\n"') + b"\n", mode=0o644)
    return Opened(charter, old.digest if old else None, difference(old.document if old else None, charter.document))


def read_lock(root: Folder) -> dict[str, Any]:
    """Return the lock file's contents; empty where there is none, `BindingError` where it cannot be read."""
    try:
        found = canonical.parse(root.read(LOCK, limit=_MAX_CHARTER))
    except FileNotFoundError:
        return {}
    except canonical.IntakeError as problem:
        raise BindingError(fault("CHARTER_CHANGED", f"{problem}; run: deedbook lock", place=LOCK)) from None
    return found if isinstance(found, dict) else {}


def here() -> str:
    """Name this platform, as far as it decides which wheels are installed."""
    return f"{sys.platform}-{platform.machine()}-cp{sys.version_info.major}{sys.version_info.minor}"


# --- freshness --------------------------------------------------------------------------------------------------------


def _kept(store: Store) -> Charter | None:
    digest = store.current()
    return None if digest is None else store.load(digest)


def _is_fresh(kept: Charter, workspace: Workspace, catalogue: Catalogue, kernel: str) -> bool:
    document = kept.document
    return (
        document["sources"] == dict(workspace.digests)
        and document["profile"] == workspace.profile
        and document["kernel"] == kernel
        and all(_is_installed(key, pin, catalogue) for key, pin in document["plugins"].items())
    )


def _is_installed(key: str, pin: Mapping[str, Any], catalogue: Catalogue) -> bool:
    offer = catalogue.offers.get(tuple(key.split("/", 1)))  # type: ignore[call-overload]
    return (
        offer is not None
        and pin["digest"] is not None
        and (offer.distribution, offer.version, offer.digest) == (pin["distribution"], pin["version"], pin["digest"])
    )


# --- the lock ---------------------------------------------------------------------------------------------------------


def _unpinned(charter: Charter, workspace: Workspace, root: Folder) -> list[DomainError]:
    """Return what the lock file does not allow."""
    pins = read_lock(root)
    if not pins:
        return [fault("CHARTER_CHANGED", "lock: required, and there is no lock; run: deedbook lock", place=LOCK)]
    old, new = pins.get("sources", {}), dict(workspace.digests)
    faults = [
        fault("CHARTER_CHANGED", f"{path} is not what the lock pins; look at it, then run: deedbook lock", place=LOCK)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
    faults += _unpinned_plugins(charter, pins.get("plugins", {}))
    pinned = pins.get("charters", {}).get(here())
    if not faults and pinned != charter.digest:
        why = f"the lock pins charter {pinned or 'none'} for {here()}; this is {charter.digest}; run: deedbook lock"
        faults.append(fault("CHARTER_CHANGED", why, place=LOCK))
    return faults


def _unpinned_plugins(charter: Charter, pins: Mapping[str, Any]) -> list[DomainError]:
    faults = []
    for pin in charter.document["plugins"].values():
        name, digest = pin["distribution"], pin["digest"]
        known = pins.get(name, {})
        if digest is None and not known.get("editable"):
            why = f"{name} is installed in place (editable); install its wheel, or run: deedbook lock --editable"
            faults.append(fault("CHARTER_CHANGED", why, place=LOCK))
        elif digest is not None and digest not in known.get("digests", ()):
            why = f"{name} {pin['version']} is not the code that the lock pins; run: deedbook lock"
            faults.append(fault("CHARTER_CHANGED", why, place=LOCK))
    return list(dict.fromkeys(faults))


def _plugin_pins(charter: Charter, pins: Mapping[str, Any], *, editable: bool) -> dict[str, Any]:
    """Return each distribution's pin; digests of other platforms' wheels of the same version stay."""
    made: dict[str, Any] = {}
    for pin in charter.document["plugins"].values():
        name, version, digest = pin["distribution"], pin["version"], pin["digest"]
        if digest is None:
            made[name] = {"version": version, "editable": True} if editable else {"version": version, "digests": []}
            continue
        before = pins.get("plugins", {}).get(name, {})
        kept = before.get("digests", []) if before.get("version") == version else []
        made[name] = {"version": version, "digests": sorted({*kept, digest})}
    return made


def _same_sources(pins: Mapping[str, Any], charter: Charter) -> bool:
    return bool(pins.get("sources") == charter.document["sources"])


def _pinned_charter(pins: Mapping[str, Any], store: Store) -> Charter | None:
    digest = pins.get("charters", {}).get(here())
    try:
        return store.load(digest) if isinstance(digest, str) else _kept(store)
    except BindingError:
        return None
