"""The charter: one frozen, content-addressed document of everything in force.

The document is plain JSON; its digest is the SHA-256 of its canonical bytes. It is compiled from sources and plugins
(`compiler`), bound for execution (`bindings`), compared (`changes`), and used to judge old sessions again.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.format import canonical
from deedbook.format.errors import BindingError, IntakeError, fault

from .charter_format import FORMAT

__all__ = ["FORMAT", "Charter", "known_files"]

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
        return cls(MappingProxyType(canonical.decode(raw)), raw, canonical.digest(raw))

    @classmethod
    def from_bytes(cls, raw: bytes, digest: str, *, authentic: bool = False) -> "Charter":
        """Read a charter that was stored under *digest*; raises `BindingError` for other bytes, or no charter.

        *authentic*: this user's key authenticates the charter, so its shape is not checked again.
        """
        if canonical.digest(raw) != digest:
            why = f"the kept charter {digest} was changed; find out who changed it, then run: deedbook lock"
            raise BindingError(fault("CHARTER_CHANGED", why))
        try:
            document = _decode(raw)
            wrong = "" if authentic else _wrong_shape(document)
        except ValueError as problem:
            wrong = f"$: expected JSON ({problem})"
        if wrong:
            raise _not_compiled(digest, wrong)
        return cls(MappingProxyType(document), raw, digest)

    def refuse_uncanonical(self) -> None:
        """Raise `BindingError` unless the bytes are the canonical JSON of the document, within the limits of intake.

        Deeper or larger values can crash the libraries that process a charter's matches and schemas.
        """
        try:
            canonical_ = canonical.encode(dict(self.document), nodes=_MAX_NODES)
        except IntakeError as problem:
            wrong = str(problem)
        else:
            wrong = "" if canonical_ == self.raw else "its bytes are not canonical JSON"
        if wrong:
            raise _not_compiled(self.digest, wrong)

    @property
    def set_aside(self) -> list[str]:
        """The reasons why skills that cannot be read are not offered, each with its place."""
        return [why for each in self.document.get("set_aside", {}).values() for why in each["why"]]

    @property
    def pinned(self) -> bool:
        """Whether all its code is known by digest: no plugin is installed in place."""
        return all(entry["digest"] is not None for entry in self.document["plugins"].values())


def _wrong_shape(document: Any) -> str:
    from .charter_shape import wrong_shape

    return wrong_shape(document)


def _decode(raw: bytes) -> Any:
    """Return *raw* as JSON; raises `ValueError`, also for so many values that they would fill the memory."""
    if sum(map(raw.count, (b",", b"[", b"{"))) >= _MAX_NODES:
        raise ValueError(f"more than {_MAX_NODES} values")
    return canonical.decode(raw)


def _not_compiled(digest: str, why: str) -> BindingError:
    return BindingError(
        fault(
            "CHARTER_CHANGED",
            f"the kept charter {digest} is not one that Deedbook compiled ({why}); find out who wrote it",
        )
    )


def known_files(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the script files in a charter's *document*."""
    hooks = document.get("hooks", {}).values()
    return frozenset(path for hook in hooks for path in hook.get("script", {}).get("files", ()))


def is_isolated(entry: Mapping[str, Any]) -> bool:
    """Return whether a hook of the charter runs in a process of its own."""
    return bool(entry.get("isolation") == "worker")


def is_asynchronous(entry: Mapping[str, Any]) -> bool:
    """Return whether a hook or policy of the charter runs outside the calling thread."""
    return "isolation" in entry and entry["isolation"] != "inline"


def identity(entry: Mapping[str, Any], plugins: Mapping[str, Any]) -> str:
    """Return the digest that identifies a gate of the charter: its configuration and its code."""
    keys = ("plugin", "settings", "match", "isolation", "script")
    told = {key: entry[key] for key in keys if key in entry}
    if "plugin" in entry:
        plugin = plugins["/".join(entry["plugin"])]
        told |= {"code": plugin["digest"], "version": plugin["version"]}
    return canonical.digest(canonical.encode(told))
