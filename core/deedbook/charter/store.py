"""Store charters and their sources once per digest in the state folder, and the record of the last start.

The folder is a cache. Everything read from it is checked by digest. The two records that name the charter in force
count only if the user's own key authenticates them (`cachekeys`); otherwise the sources are compiled again.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Json
from deedbook.format import canonical
from deedbook.format.errors import BindingError, FileRefused, IntakeError, fault
from deedbook.format.files import Folder
from deedbook.format.schema import Validator, foreign
from deedbook.policy.charter import MAX_NODES, Charter, not_compiled_error

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
    """Return the validator of a start record, compiled once."""
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
class StartRecord:
    """The result of a start: its *charter* (a digest), the *folders* it read and their `inventory.digest_names`.

    *secrets* are the names of the secrets that plugins asked for.
    """

    charter: str
    folders: tuple[str, ...]
    listing: str
    secrets: tuple[str, ...]


class Store:
    """Charters and their sources, stored once per digest in the state folder.

    *key* authenticates the records of starts and of the charter in force; without a key no start is saved.
    """

    def __init__(self, state: Folder, key: CacheKey = NO_KEY) -> None:
        self._state = state
        self.key = key

    def load(self, digest: str) -> Charter:
        """Return the charter stored under *digest*; raises `BindingError` if it is missing or has other bytes."""
        found = self.find(digest)
        if found is None:
            raise BindingError(fault("CHARTER_CHANGED", f"charter {digest} is not kept in this state folder"))
        return found

    def find(self, digest: str, *, authentic: bool = False) -> Charter | None:
        """Return the charter stored under *digest*, or ``None``.

        Raises `BindingError` if the bytes do not match or are no charter; *authentic* skips the latter check.
        """
        try:
            return parse_charter(self._read(digest, "charter"), digest, authentic=authentic)
        except FileNotFoundError:
            return None

    def sources(self, charter: Charter) -> Mapping[str, bytes]:
        """Return the sources of *charter*, by path; raises `BindingError` if they do not match."""
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
        """Store *charter* and its sources below *root*; entries that are stored and valid stay.

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
        """Return the digest of the charter that was last in force, if it is known."""
        digest = self._current().get("charter")
        return digest if isinstance(digest, str) and _IS_DIGEST(digest) else None

    def authenticates(self, digest: str) -> bool:
        """Return whether this user's key authenticates *digest* as the charter last in force."""
        found = self._current()
        return found.get("charter") == digest and self.key.authenticates(found.get("mac"), _CURRENT, digest)

    def start(self, profile: str) -> StartRecord | None:
        """Return the record of the last start under *profile* (``""``: the workspace's own), if it is authentic."""
        found: Any = self._starts().get(profile)
        if not _start().valid(found):
            return None
        start = StartRecord(found["charter"], tuple(found["folders"]), found["listing"], tuple(found["secrets"]))
        return start if self.key.authenticates(found["mac"], _STARTS, [profile, _plain(start)]) else None

    def remember(self, profile: str, start: StartRecord) -> None:
        """Save the record of a start under *profile* for the next one; without a key, nothing is saved."""
        starts, made = self._starts(), _plain(start)
        code = self.key.code(_STARTS, [profile, made])
        if code and starts.get(profile) != (authentic := {**made, "mac": code}):
            self._state.replace(_STARTS, canonical.encode({**starts, profile: authentic}))

    def adopt(self, charter: Charter) -> None:
        """Save *charter* as the one in force."""
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


def _plain(start: StartRecord) -> dict[str, Json]:
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


def parse_charter(raw: bytes, digest: str, *, authentic: bool = False) -> Charter:
    """Read a charter that was stored under *digest*; raises `BindingError` for other bytes, or no charter.

    *authentic*: this user's key authenticates the charter, so its shape is not checked again.
    """
    if canonical.digest(raw) != digest:
        why = f"the kept charter {digest} was changed; find out who changed it, then run: deedbook lock"
        raise BindingError(fault("CHARTER_CHANGED", why))
    try:
        document = _decode(raw)
        wrong = ""
        if not authentic:
            from .shape import wrong_shape

            wrong = wrong_shape(document)
    except ValueError as problem:
        wrong = f"$: expected JSON ({problem})"
    if wrong:
        raise not_compiled_error(digest, wrong)
    return Charter(MappingProxyType(document), raw, digest)


def _decode(raw: bytes) -> Any:
    """Return *raw* as JSON; raises `ValueError`, also for so many values that they would fill the memory."""
    if sum(map(raw.count, (b",", b"[", b"{"))) >= MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} values")
    return canonical.decode(raw)
