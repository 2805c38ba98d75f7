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

FORMAT: Final = "charter-1"
"""The format that every charter names."""
DEFAULT: Final = "default"
"""The member for calls with effects that no policy covers (`defaults`), and its key in ``deedbook.yaml``."""
ROUNDS: Final = 3
"""How often hooks of ``Stop`` may send a run into another round, unless the profile says otherwise."""
RULE_LISTS: Final = frozenset({"rules"})
"""Kinds whose body is ``{rules: [{match, then, …}], default}``, where the first rule that holds decides.

The kernel compares such policies of two charters rule by rule, and knows the tags that each rule names. A stored
charter has only the name of a kind, so the form is known by that name.
"""
MAX_NODES: Final = 10_000_000  # many times what a record may have: ten thousand abilities


@attrs.frozen
class Charter:
    """A compiled charter: its *document*, the canonical bytes, and their SHA-256."""

    document: Mapping[str, Any] = attrs.field(repr=False)
    raw: bytes = attrs.field(repr=False)
    digest: str

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Charter":
        """Return *document* as a charter."""
        raw = canonical.encode(dict(document), nodes=MAX_NODES)
        return cls(MappingProxyType(canonical.decode(raw)), raw, canonical.digest(raw))

    def refuse_uncanonical(self) -> None:
        """Raise `BindingError` unless the bytes are the canonical JSON of the document, within the limits of intake.

        Deeper or larger values can crash the libraries that process a charter's matches and schemas.
        """
        try:
            canonical_ = canonical.encode(dict(self.document), nodes=MAX_NODES)
        except IntakeError as problem:
            wrong = str(problem)
        else:
            wrong = "" if canonical_ == self.raw else "its bytes are not canonical JSON"
        if wrong:
            raise not_compiled_error(self.digest, wrong)

    @property
    def set_aside(self) -> list[str]:
        """The reasons why skills that cannot be read are not offered, each with its place."""
        return [why for each in self.document.get("set_aside", {}).values() for why in each["why"]]

    @property
    def pinned(self) -> bool:
        """Whether all its code is known by digest: no plugin is installed in place."""
        return all(entry["digest"] is not None for entry in self.document["plugins"].values())


def not_compiled_error(digest: str, why: str) -> BindingError:
    """Return the error that the stored charter *digest* is not one that the compiler made."""
    return BindingError(
        fault(
            "CHARTER_CHANGED",
            f"the kept charter {digest} is not one that Deedbook compiled ({why}); find out who wrote it",
        )
    )


def script_files(document: Mapping[str, Any]) -> frozenset[str]:
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
    members = {key: entry[key] for key in keys if key in entry}
    if "plugin" in entry:
        plugin = plugins["/".join(entry["plugin"])]
        members |= {"code": plugin["digest"], "version": plugin["version"]}
    return canonical.digest(canonical.encode(members))


def lists_rules(policy: Mapping[str, Any]) -> bool:
    """Return whether the body of a charter's policy is a list of rules."""
    kind, name = policy["plugin"]
    return kind == "policy" and name in RULE_LISTS
