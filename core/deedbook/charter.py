"""The charter: one frozen, content-addressed document of everything in force.

The document is plain JSON; its digest is the SHA-256 of its canonical bytes. It is compiled from sources and plugins
(`compiler`). What runs is bound from it (`bindings`), what changed is read from it (`changes`), and old sessions are
judged again by it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from . import canonical
from .errors import BindingError, fault

FORMAT: Final = "charter-1"
_MAX_NODES: Final = 10_000_000  # many times what a record may have: ten thousand abilities


@attrs.frozen
class Charter:
    """A compiled charter: its *document*, the canonical bytes, and their SHA-256."""

    document: Mapping[str, Any] = attrs.field(repr=False)
    raw: bytes = attrs.field(repr=False)
    digest: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Charter":
        """Return *document* as a charter."""
        raw = canonical.encode(dict(document), nodes=_MAX_NODES)
        return cls.from_bytes(raw, canonical.digest(raw))

    @classmethod
    def from_bytes(cls, raw: bytes, digest: str) -> "Charter":
        """Read a charter that was kept under *digest*; raises `BindingError` if the bytes are others."""
        if canonical.digest(raw) != digest:
            why = f"the kept charter {digest} is not what was kept; find out who changed it, then run: deedbook lock"
            raise BindingError(fault("CHARTER_CHANGED", why))
        return cls(MappingProxyType(canonical.decode(raw)), raw, digest)

    @property
    def set_aside(self) -> list[str]:
        """Why skills that cannot be read are not offered, every reason with its place."""
        return [why for each in self.document.get("set_aside", {}).values() for why in each["why"]]

    @property
    def pinned(self) -> bool:
        """Whether all code behind it is known by digest: nothing of it is installed in place."""
        return all(entry["digest"] is not None for entry in self.document["plugins"].values())


def known_files(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the files that are scripts in a charter's *document*."""
    hooks = document.get("hooks", {}).values()
    return frozenset(path for hook in hooks for path in hook.get("script", {}).get("files", ()))
