"""The charters of a workspace and their sources, kept once per digest in its state folder; what the last start found.

The folder is a cache. What is read from it is checked by digest. The two records that say which charter is in force
count only if the user's own key authenticates them (`cachekeys`); otherwise the sources are compiled again.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import attrs

from deedbook.contract import Json
from deedbook.format import canonical
from deedbook.format.errors import BindingError, FileRefused, IntakeError, fault
from deedbook.format.files import Folder
from deedbook.format.schema import Validator, foreign
from deedbook.policy.charter import Charter

from .cachekeys import NO_KEY, CacheKey

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
            "required": ["charter", "folders", "listing", "secrets", "mac"],
            "properties": {
                "charter": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                "folders": _NAMES,
                "listing": {"type": "string"},
                "secrets": _NAMES,
                "mac": {"type": "string"},
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
    """Charters and their sources, kept once per digest in the state folder.

    *key* authenticates the records of starts and of the charter in force; without one no start is remembered.
    """

    def __init__(self, state: Folder, key: CacheKey = NO_KEY) -> None:
        self._state = state
        self.key = key

    def load(self, digest: str) -> Charter:
        """Return the charter kept under *digest*; raises `BindingError` if its bytes are others, or it is not there."""
        found = self.find(digest)
        if found is None:
            raise BindingError(fault("CHARTER_CHANGED", f"charter {digest} is not kept in this state folder"))
        return found

    def find(self, digest: str, *, authentic: bool = False) -> Charter | None:
        """Return the charter kept under *digest*, if it is there.

        Raises `BindingError` if its bytes are others, or no charter; the latter is not checked if it is *authentic*.
        """
        try:
            return Charter.from_bytes(self._read(digest, "charter"), digest, authentic=authentic)
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
        digest = self._current().get("charter")
        return digest if isinstance(digest, str) and _IS_DIGEST(digest) else None

    def authenticates(self, digest: str) -> bool:
        """Return whether this user's key authenticates the charter *digest* as the one last in force."""
        found = self._current()
        return found.get("charter") == digest and self.key.authenticates(found.get("mac"), _CURRENT, digest)

    def start(self, profile: str) -> Start | None:
        """Return what the last start under *profile* (``""``: the workspace's own) found, if it is authentic."""
        found: Any = self._starts().get(profile)
        if not _start().valid(found):
            return None
        start = Start(found["charter"], tuple(found["folders"]), found["listing"], tuple(found["secrets"]))
        return start if self.key.authenticates(found["mac"], _STARTS, [profile, _plain(start)]) else None

    def remember(self, profile: str, start: Start) -> None:
        """Remember what a start under *profile* found, for the next one; without a key, nothing is remembered."""
        starts, made = self._starts(), _plain(start)
        code = self.key.code(_STARTS, [profile, made])
        if code and starts.get(profile) != (authentic := {**made, "mac": code}):
            self._state.replace(_STARTS, canonical.encode({**starts, profile: authentic}))

    def adopt(self, charter: Charter) -> None:
        """Remember *charter* as the one in force."""
        code = self.key.code(_CURRENT, charter.digest)
        record = {"charter": charter.digest, **({"mac": code} if code else {})}
        self._state.replace(_CURRENT, canonical.encode(record))

    def _current(self) -> dict[str, Any]:
        return self._record(_CURRENT, 4096)

    def _starts(self) -> dict[str, Any]:
        return self._record(_STARTS, _MAX_STARTS)

    def _record(self, name: str, limit: int) -> dict[str, Any]:
        try:
            found = canonical.parse(self._state.read(name, limit=limit))
        except (FileNotFoundError, FileRefused, IntakeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _read(self, digest: str, name: str) -> bytes:
        return self._state.read(f"charters/{digest}/{name}.json", limit=_MAX_BYTES)


def _plain(start: Start) -> dict[str, Json]:
    """Return *start* as JSON."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in attrs.asdict(start).items()}


def _text(root: Folder, path: str, digest: str) -> str:
    """Read a source again; raise `BindingError` if it is not what was compiled."""
    try:
        raw = root.read(path, limit=_MAX_BYTES)
    except FileNotFoundError:
        raw = b""
    if canonical.digest(raw) != digest:
        raise BindingError(fault("CHARTER_CHANGED", "changed while the charter was compiled; start again", place=path))
    return raw.decode("utf-8", _LOSSLESS)
