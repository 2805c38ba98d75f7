"""The charters of a workspace and their sources, kept once per digest in its state folder; what the last start found.

The folder is a cache: what is read from it is checked by digest, or used only to find out that nothing changed.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import attrs

from . import canonical
from .charter import Charter
from .errors import BindingError, FileRefused, IntakeError, fault
from .files import Folder
from .schema import Validator, foreign

_MAX_BYTES: Final = 256 * 1024 * 1024
_LOSSLESS: Final = "surrogateescape"  # a skill that no loader reads may be any bytes
_CURRENT: Final = "charters/current.json"
_STARTS: Final = "charters/starts.json"
_MAX_STARTS: Final = 1024 * 1024
_IS_DIGEST: Final = re.compile("[0-9a-f]{64}").fullmatch


_NAMES: Final = {"type": "array", "items": {"type": "string"}}


@cache
def _start() -> Validator:
    """Return the shape of one start, compiled at the first."""
    return foreign(
        {
            "type": "object",
            "required": ["charter", "folders", "listing", "secrets"],
            "properties": {
                "charter": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "folders": _NAMES,
                "listing": {"type": "string"},
                "secrets": _NAMES,
            },
            "additionalProperties": False,
        },
        place=_STARTS,
    )


@attrs.frozen
class Start:
    """What a start found: the *charter* it came to (a digest), the *folders* it read and their `inventory.listing`.

    *secrets* are the names of those that plugins asked for.
    """

    charter: str
    folders: tuple[str, ...]
    listing: str
    secrets: tuple[str, ...]


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

    def start(self, profile: str) -> Start | None:
        """Return what the last start under *profile* (``""``: the workspace's own) found, if that can be told."""
        found: Any = self._starts().get(profile)
        if not _start().valid(found):
            return None
        return Start(found["charter"], tuple(found["folders"]), found["listing"], tuple(found["secrets"]))

    def remember(self, profile: str, start: Start) -> None:
        """Remember what a start under *profile* found, for the next one."""
        starts = self._starts()
        made = {name: list(value) if isinstance(value, tuple) else value for name, value in attrs.asdict(start).items()}
        if starts.get(profile) != made:
            self._state.replace(_STARTS, canonical.encode({**starts, profile: made}))

    def adopt(self, charter: Charter) -> None:
        """Remember *charter* as the one in force."""
        self._state.replace(_CURRENT, canonical.encode({"charter": charter.digest}))

    def _starts(self) -> dict[str, Any]:
        try:
            found = canonical.parse(self._state.read(_STARTS, limit=_MAX_STARTS))
        except (FileNotFoundError, FileRefused, IntakeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _read(self, digest: str, name: str) -> bytes:
        return self._state.read(f"charters/{digest}/{name}.json", limit=_MAX_BYTES)


def _text(root: Folder, path: str, digest: str) -> str:
    """Read a source again; raise `BindingError` if it is not what was compiled."""
    try:
        raw = root.read(path, limit=_MAX_BYTES)
    except FileNotFoundError:
        raw = b""
    if canonical.digest(raw) != digest:
        raise BindingError(fault("CHARTER_CHANGED", "changed while the charter was compiled; start again", place=path))
    return raw.decode("utf-8", _LOSSLESS)
