"""``.system/deedbook.lock``: the file that `deedbook lock` writes, read strictly and easy to compare for people.

It holds the digests of the sources, for each platform the digest of the charter that was compiled there, and for each
distribution of plugins the digests of its wheels' files (platforms may need several). Under ``lock: required``
everything else is refused; each fault names what differs.
"""

import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import BindingError, DomainError, IntakeError, fault, raise_all
from deedbook.format.files import Folder
from deedbook.format.schema import foreign
from deedbook.plugins.moves import read_moves
from deedbook.plugins.plugins import Offer

LOCK: Final = ".system/deedbook.lock"

_MAX_BYTES: Final = 16 * 1024 * 1024
_RUN: Final = "look at it, then run: deedbook lock"
_DIGEST: Final = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DIGESTS: Final = {"type": "object", "additionalProperties": _DIGEST}
_PIN: Final = {
    "type": "object",
    "required": ["version"],
    "properties": {
        "version": {"type": "string"},
        "digests": {"type": "array", "items": _DIGEST},
        "editable": {"type": "boolean"},
    },
    "additionalProperties": False,
}
_SHAPE: Final[Object] = {
    "type": "object",
    "required": ["schema_version", "kernel", "profile", "sources", "charters", "plugins"],
    "properties": {
        "schema_version": {"const": "v1"},
        "kernel": {"type": "string"},
        "profile": {"type": "string"},
        "sources": _DIGESTS,
        "charters": _DIGESTS,
        "plugins": {"type": "object", "additionalProperties": _PIN},
    },
    "additionalProperties": False,
}


def current_platform() -> str:
    """Return the name of this platform, as far as it decides which wheels are installed."""
    return f"{sys.platform}-{platform.machine()}-cp{sys.version_info.major}{sys.version_info.minor}"


@attrs.frozen
class Pin:
    """The pin of one distribution: its *version*, the *digests* of its wheels, or that it is *editable*."""

    version: str
    digests: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    editable: bool = False


@attrs.frozen(kw_only=True)
class Lock:
    """A lock file's contents; *charters* are by platform (`current_platform`), *plugins* by distribution."""

    kernel: str
    profile: str
    sources: Mapping[str, str]
    charters: Mapping[str, str]
    plugins: Mapping[str, Pin]

    @classmethod
    def read(cls, root: Folder) -> "Lock | None":
        """Read the lock of the workspace at *root*; ``None`` if there is none, `BindingError` if it is damaged."""
        try:
            found = canonical.parse(root.read(LOCK, limit=_MAX_BYTES))
        except FileNotFoundError:
            return None
        except IntakeError as problem:
            raise BindingError(fault("CHARTER_CHANGED", f"{problem}; run: deedbook lock", place=LOCK)) from None
        wrong = foreign(_SHAPE, place=LOCK).violations(found)
        raise_all(BindingError, (fault("CHARTER_CHANGED", f"{each}; run: deedbook lock", place=LOCK) for each in wrong))
        del found["schema_version"]
        return cls(**{**found, "plugins": {name: Pin(**pin) for name, pin in found["plugins"].items()}})

    # --- what it does not allow ---------------------------------------------------------------------------------------

    def refuse_code(self, offer: Offer, digest: str | None) -> DomainError | None:
        """Return an error if the code of a plugin is not pinned (*digest* ``None``: it may change), else ``None``.

        Called before the plugin is imported.
        """
        name, pin = offer.distribution, self.plugins.get(offer.distribution)
        if pin is None:
            move = read_moves().get(f"{offer.kind}/{offer.name}")
            moved = f"{offer.kind} {offer.name!r} moved from {move.old}: " if move and move.new == name else ""
            why = f"{moved}{name} {offer.version} is not pinned; {_RUN}"
        elif digest is None and not pin.editable:
            why = (
                f"{name} is installed in place, or without a record of its files, and may change unseen; "
                "install its wheel, or run: deedbook lock --editable"
            )
        elif digest is not None and digest not in pin.digests:
            why = f"{name} {offer.version} is not the code that is pinned as {pin.version}; {_RUN}"
        else:
            return None
        return fault("CHARTER_CHANGED", why, place=LOCK)

    def refuse_sources(self, sources: Mapping[str, str], *, profile: str, kernel: str) -> Iterator[DomainError]:
        """Yield the differences in sources, profile and kernel."""
        for what, pinned, found in (("profile", self.profile, profile), ("kernel", self.kernel, kernel)):
            if pinned != found:
                yield fault("CHARTER_CHANGED", f"{what} {pinned} is pinned, this is {found}; {_RUN}", place=LOCK)
        for path in sorted(self.sources.keys() | sources.keys()):
            pinned_digest, digest = self.sources.get(path), sources.get(path)
            if pinned_digest != digest:
                how = "is new" if pinned_digest is None else "is gone" if digest is None else "changed"
                yield fault("CHARTER_CHANGED", f"{path} {how} since it was pinned; {_RUN}", place=LOCK)

    def refuse_charter(self, digest: str) -> Iterator[DomainError]:
        """Yield a fault if another charter, or none, is pinned for this platform."""
        pinned = self.charters.get(current_platform())
        if pinned is None:
            known = ", ".join(sorted(self.charters)) or "none"
            yield fault(
                "CHARTER_CHANGED",
                f"no charter is pinned for {current_platform()}, only for {known}; {_RUN}",
                place=LOCK,
            )
        elif pinned != digest:
            yield fault("CHARTER_CHANGED", f"charter {pinned} is pinned, this is {digest}; {_RUN}", place=LOCK)
