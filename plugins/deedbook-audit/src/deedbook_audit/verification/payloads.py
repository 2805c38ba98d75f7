"""The payloads of one ledger's lines: canonical JSON, sealed values beside the file, and schemas.

A checked payload is cached by type and hash: gates often record the same payload again, byte for byte.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from deedbook.format import canonical, events
from deedbook.format.errors import DeedbookError, IntakeError
from deedbook.format.families import LATER, schema_of
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, Validator
from deedbook.format.sealed import open_values
from deedbook.format.terminal import excerpt
from deedbook.plugins.event_families import declared_family, read_granted_families
from deedbook_audit.report import Findings

from .excisions import EXCISED

Declared: TypeAlias = Callable[[str], Mapping[str, Validator] | None]
"""Called with a charter's digest; returns validators of the event types it declares, ``None`` if it is not at hand."""

SALT: Final = 32
UNDECLARED: Final[Mapping[str, Validator]] = MappingProxyType({})

_HEX64: Final = re.compile("[0-9a-f]{64}")
_EXCISED_MARK: Final = b'{"$excised":"'
_SEALED: Final = b'"$sealed"'
_MAX_VIOLATIONS: Final = 5
_REPEATING: Final = frozenset({"hook.fired", "policy.check"})
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 2048


def no_charter(_digest: str) -> None:
    """Return that no charter is at hand."""


class Payloads:
    """The payloads of one ledger: failures of bytes go to *stored*, failures of content to *meaning*.

    *declared* holds validators of event types that a charter added; `use_charter` changes it where a session is resumed
    under another one.
    """

    def __init__(
        self,
        folder: Folder,
        schemas: Schemas,
        stored: Findings,
        meaning: Findings,
        declared: Mapping[str, Validator] | None = UNDECLARED,
    ) -> None:
        self.sealed = SealedFiles(folder, stored)
        self._schemas = schemas
        self._stored, self._meaning = stored, meaning
        self._cached: dict[bytes, tuple[str, Any]] = {}
        self.use_charter(declared)

    def use_charter(self, declared: Mapping[str, Validator] | None) -> None:
        """Check the event types of plugins in the next lines as *declared*; ``None``: their charter is not at hand."""
        self._validators: dict[str, Validator | None] = dict(declared or {})
        self._known = declared is not None
        self._granted = read_granted_families() if declared is None else {}

    @property
    def known(self) -> bool:
        """Whether every charter that declares event types is at hand."""
        return self._known

    def declare(self, declared: Mapping[str, Validator] | None) -> None:
        """Add the event types of one more charter; ``None`` if it is not at hand."""
        if declared is None:
            self._known, self._granted = False, read_granted_families()
        else:
            self._validators.update(declared)

    def read(self, number: int, kind: str, payload: bytes, stated: bytes = b"") -> Any:
        """Return a line's payload, checked; ``None`` for an unsound one, ``EXCISED`` for an excised one.

        *stated* is the payload's hash if hashes were checked, so that a placeholder is recognized.
        """
        known = self._cached.get(stated)
        if known is not None and known[0] == kind:
            return known[1]
        if payload.startswith(_EXCISED_MARK) and stated and payload[len(_EXCISED_MARK) :] == stated + b'"}':
            return EXCISED
        if len(payload) > events.MAX_PAYLOAD:
            self._stored.add(number, "size", f"a payload of at most {events.MAX_PAYLOAD} bytes", f"{len(payload)}")
            return None
        try:
            value = canonical.decode(payload)
            exact = canonical.encode_payload(value)
        except (ValueError, IntakeError) as problem:
            self._stored.add(number, *_describe_unreadable(payload, problem))
            return None
        if exact != payload:
            self._stored.add(number, "canonical", *_find_difference(exact, payload))
            stated = b""
        if _SEALED in payload:
            self.sealed.check(number, value)
            stated = b""
        if kind == "payload.erased":
            self.sealed.record_erasure(value)
        if not self._is_valid(number, kind, value):
            return None
        if kind in _REPEATING:
            self._cache(kind, stated, payload, value)
        return value

    def _cache(self, kind: str, stated: bytes, payload: bytes, value: Any) -> None:
        if stated and len(payload) <= _MAX_CACHED_BYTES:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            self._cached[stated] = kind, value

    def _is_valid(self, number: int, kind: str, value: Any) -> bool:
        """Return whether a payload matches the schema of its event type."""
        key = kind if kind not in LATER else schema_of(kind, value) or kind
        if key not in self._validators:
            if not self._known and declared_family(kind, self._granted):
                return True
            self._validators[key] = self._find(kind, value)
        validator = self._validators[key]
        if validator is None:
            self._meaning.add(number, "event_type", "a type of the catalogue, or one that is declared", kind)
            return False
        if validator.valid(value) or (schema_of(kind, value) is None and self.sealed.fits(validator, value)):
            return True
        if self._meaning.is_full("payload"):  # listing violations costs far more than detecting them
            self._meaning.count("payload")
            return False
        for violation in validator.violations(value)[:_MAX_VIOLATIONS]:
            self._meaning.add(number, "payload", f"what {kind} must hold", str(violation))
        return False

    def _find(self, kind: str, value: Any) -> Validator | None:
        schema = schema_of(kind, value)
        return self._schemas.validator(schema) if schema else None


def _describe_unreadable(payload: bytes, problem: Exception) -> tuple[str, str, str]:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError as wrong:
        return "utf-8", "well-formed UTF-8", f"{wrong.reason} at byte {wrong.start} of the payload"
    check = "canonical" if isinstance(problem, IntakeError) else "json"
    return check, "a payload of acceptable JSON", str(problem)


def _find_difference(expected: bytes, found: bytes) -> tuple[str, bytes]:
    """Return the canonical and the stored bytes, from shortly before their first difference."""
    at = next((i for i, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), len(expected))
    at = max(0, min(at, len(found)) - 20)
    return excerpt(expected[at : at + 80]), found[at : at + 80]


class SealedFiles:
    """The sealed values beside a ledger: each is present and matches its commitment, or is counted as absent."""

    def __init__(self, folder: Folder, findings: Findings) -> None:
        self._folder = folder
        self._findings = findings
        self.present = self.absent = 0
        self.to_erase: set[str] = set()

    def notes(self) -> Iterator[str]:
        """Yield the number of sealed values, and of those that should have been erased."""
        left = sorted(digest for digest in self.to_erase if self._folder.exists(f"sealed/{digest}"))
        if left:
            yield f"erasure not finished: {len(left)} sealed values are still there, such as {left[0]}"
        if self.present or self.absent:
            gone = f"{len(self.to_erase) - len(left)} erased" if self.to_erase else "erased"
            yield f"sealed values: {self.present} present, {self.absent} absent ({gone}, or not copied along)"

    def record_erasure(self, payload: Any) -> None:
        """Apply the digests of a ``payload.erased``."""
        digests = payload.get("digests") if isinstance(payload, dict) else None
        if isinstance(digests, list):
            self.to_erase.update(each for each in digests if isinstance(each, str) and _HEX64.fullmatch(each))

    def check(self, number: int, value: Any) -> None:
        """Check every commitment inside *value*."""
        if isinstance(value, list):
            for item in value:
                self.check(number, item)
        elif isinstance(value, dict) and canonical.SEALED_KEY in value:
            self._check_one(number, value)
        elif isinstance(value, dict):
            for item in value.values():
                self.check(number, item)

    def fits(self, validator: Validator, value: Any) -> bool:
        """Return whether *value* has sealed parts and was valid before they were sealed.

        The schema of a plugin describes the payload as it was recorded. If a sealed part is absent, the payload cannot
        be checked and counts as valid.
        """
        try:
            opened = open_values(self._folder, value)
        except FileNotFoundError:
            return True
        except (DeedbookError, OSError, ValueError):
            return False
        return bool(opened != value and validator.valid(opened))

    def _check_one(self, number: int, value: dict[str, Any]) -> None:
        digest, size = value[canonical.SEALED_KEY], value.get("size")
        if len(value) != 2 or not isinstance(digest, str) or not _HEX64.fullmatch(digest) or type(size) is not int:
            self._findings.add(number, "sealed", 'an object of "$sealed" (64 hex digits) and "size"', str(value))
            return
        try:
            raw = self._folder.read(f"sealed/{digest}", limit=canonical.MAX_BYTES + SALT)
        except FileNotFoundError:
            self.absent += 1
        except (DeedbookError, OSError) as problem:
            self._findings.add(number, "sealed", f"a readable file sealed/{digest}", str(problem))
        else:
            self.present += 1
            if (canonical.digest(raw), len(raw) - SALT) != (digest, size):
                found = f"{canonical.digest(raw)} with {len(raw) - SALT}"
                self._findings.add(number, "sealed", f"{digest} with {size} bytes behind the salt", found)
