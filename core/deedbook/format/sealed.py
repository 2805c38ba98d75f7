"""Sealed values: the ledger commits to them by a salted digest, while their bytes lie beside it.

In a payload, a sealed value is ``{"$sealed": d, "size": n}``: *d* is the SHA-256 of 32 random bytes and the value's
canonical JSON, *n* the size of the latter; the file ``sealed/<d>`` holds both. Redaction, large data and lawful erasure
all use this mechanism. The values of secrets are not kept at all: a mark replaces them.
"""

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

import attrs

from deedbook.contract import Json, Object
from deedbook.contract.pointers import escape, split_pointer

from .canonical import MAX_BYTES, SEALED_KEY, decode, digest, encode, encode_payload
from .errors import FileRefused, IntakeError, LedgerError, SourceError, fault, raise_all
from .files import Folder

if TYPE_CHECKING:
    from .detectors import Detectors

MASK_PREFIX: Final = "[secret:"
"""The beginning of the mark that replaces the value of a secret; its name and a bracket follow."""
MAX_INLINE: Final = 1024 * 1024
"""Members of a larger payload are sealed until it fits."""
MAX_BLOBS: Final = 64
"""If more values than this would be sealed in one payload, whole members are sealed: each is a file of its own."""
SALT_BYTES: Final = 32

_SALTED: Final = re.compile(r"[0-9a-f]{64}")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_SHORT: Final = 6
_UNBOUNDED: Final = ("text", "tool_calls")  # the parts of a model's answer that may be large
_SMALL: Final = 4096


@attrs.frozen
class Blob:
    """The content of ``sealed/<digest>``: *data* is the salt and then the value's canonical JSON."""

    digest: str
    data: bytes


# --- the rules --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Rules:
    """What to seal: values at places, values that a detector matches, values that contain a pattern.

    *places* pairs a glob over event types (``*`` stands for any characters) with the segments of a JSON pointer (RFC
    6901), of which ``*`` stands for every member. *patterns* are regular expressions of linear time.
    """

    places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    detectors: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, items: Sequence[Json], *, place: str = "seal") -> "Rules":
        """Parse the YAML list ``seal:``; raises one `SourceError` with all faults, each with its index."""
        rules, faults = cls(), []
        for index, item in enumerate(items):
            try:
                rules = rules._with(item)
            except ValueError as problem:
                faults.append(fault("SOURCE_INVALID", str(problem), place=f"{place}[{index}]"))
        raise_all(SourceError, faults)
        return rules

    def _with(self, item: Json) -> "Rules":
        if isinstance(item, str):
            return attrs.evolve(self, places=(*self.places, _place(item)))
        from .detectors import NAMES, find_any

        match item:
            case {"detect": str(name), **rest} if not rest and name in NAMES:
                return attrs.evolve(self, detectors=self.detectors | {name})
            case {"pattern": str(pattern), **rest} if not rest:
                find_any(pattern)
                return attrs.evolve(self, patterns=(*self.patterns, pattern))
        known = ", ".join(sorted(NAMES))
        raise ValueError(
            f'{item!r} is no rule; expected "<event type>/<pointer>", {{detect: one of {known}}} or {{pattern: "…"}}'
        )


def _detectors(rules: Rules) -> "Detectors | None":
    """Return what finds values by detectors and patterns; ``None`` where no rule asks for that."""
    if not rules.detectors and not rules.patterns:
        return None
    from .detectors import Detectors

    return Detectors(rules.detectors, rules.patterns)


def _place(text: str) -> tuple[str, tuple[str, ...]]:
    event_type, slash, pointer = text.partition("/")
    if not slash or not pointer or not re.fullmatch(r"[a-z0-9_.*]+", event_type):
        raise ValueError(f'{text!r} names no value; expected "<event type>/<pointer>", such as "user.message/text"')
    return event_type, tuple(split_pointer(f"/{pointer}"))


# --- the sealer -------------------------------------------------------------------------------------------------------


class Sealer:
    """Removes from a payload what must not be in the ledger; it changes the record, never the call.

    First the values of *secrets* (by name) are replaced by ``[secret:NAME]``, also in base64 and URL encodings; then
    members are sealed, largest first, until the payload fits; then the values that *rules* select are sealed.
    """

    def __init__(self, rules: Rules | None = None, secrets: Mapping[str, str] | None = None) -> None:
        self._rules = rules or Rules()
        self._detectors = _detectors(self._rules)
        self._marks = _marks(secrets or {})
        self._needles = tuple(encode(needle)[1:-1] for needle, _ in self._marks)
        self._places: dict[str, tuple[tuple[str, ...], ...]] = {}

    @property
    def active(self) -> bool:
        """Whether a payload that is small enough could be changed at all."""
        return self._rules != Rules() or bool(self._marks)

    def __call__(self, event_type: str, payload: bytes) -> tuple[bytes, tuple[Blob, ...]]:
        """Return the payload to be recorded and the blobs to keep beside it; unchanged if nothing is sealed.

        *payload* is the canonical JSON of an object. A payload that cannot be made to fit is an `IntakeError`.
        """
        blobs: list[Blob] = []
        payload = _fit(self.scrub(payload), blobs)
        payload = self._apply_rules(event_type, payload, blobs)
        return _fit(payload, blobs), tuple(blobs)

    # --- secrets ------------------------------------------------------------------------------------------------------

    def scrub(self, payload: bytes) -> bytes:
        """Return canonical *payload* with the values of secrets masked; doing it again changes nothing."""
        if any(needle in payload for needle in self._needles):
            return encode_payload(self._scrub_value(decode(payload)))
        return payload

    def _scrub_value(self, value: Any) -> Any:
        if type(value) is str:
            return self.mark_secrets(value)
        if type(value) is list:
            return [self._scrub_value(item) for item in value]
        if type(value) is dict:
            return self._scrub_object(value)
        if type(value) in (int, float):
            spelled = encode(value).decode()
            return (
                self.mark_secrets(spelled) if any(n in spelled for n, _ in self._marks if len(n) >= _SHORT) else value
            )
        return value

    def _scrub_object(self, value: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in value.items():
            name = marked = self.mark_secrets(key)
            while name in made:
                name = marked = f"{marked}'"
            made[name] = self._scrub_value(item)
        return made

    def mark_secrets(self, text: str) -> str:
        """Return *text* with the values of secrets marked, in every spelling."""
        for needle, mark in self._marks:
            text = text.replace(needle, mark)
        return text

    # --- places and detectors -----------------------------------------------------------------------------------------

    def _apply_rules(self, event_type: str, payload: bytes, blobs: list[Blob]) -> bytes:
        places = self._places.get(event_type)
        if places is None:
            places = tuple(path for glob, path in self._rules.places if fnmatchcase(event_type, glob))
            self._places[event_type] = places
        look = self._detectors is not None and self._detectors.suspects(payload)
        if not places and not look:
            return payload
        found: list[Blob] = []
        value = decode(payload)
        for path in places:
            _seal_at(value, path, found)
        if look:
            value = {key: self._seal_matches(item, found) for key, item in value.items()}
        if found:
            payload = _sealed_or_whole(value, payload, found)
        blobs += found
        return payload

    def _seal_matches(self, value: Any, blobs: list[Blob]) -> Any:
        assert self._detectors
        if type(value) is dict:
            if SEALED_KEY in value:
                return value
            if any(self._detectors.fires(key) for key in value):
                return _seal(value, blobs)
            return {key: self._seal_matches(item, blobs) for key, item in value.items()}
        if type(value) is list:
            return [self._seal_matches(item, blobs) for item in value]
        found = type(value) in (str, int) and self._detectors.fires(str(value))
        return _seal(value, blobs) if found else value


def _marks(secrets: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Pair every encoding of every secret with its mark, the longest first, since one may contain another."""
    pairs = {
        needle: f"{MASK_PREFIX}{name}]" for name, value in secrets.items() if value for needle in _spellings(value)
    }
    return tuple(sorted(pairs.items(), key=lambda pair: -len(pair[0])))


def _spellings(value: str) -> Iterator[str]:
    yield value
    if len(value) < _SHORT:
        return
    raw = value.encode()
    yield encode(value)[1:-1].decode()
    yield escape(value)
    for ends in ("", "'", "'\""):  # messages have names of arguments as Python writes them, in either kind of quotes
        yield repr(f"{value}{ends}")[1 : -1 - (len(ends) and len(repr(ends)) - 2)]
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted
        yield _PERCENT.sub(lambda found: found[0].lower(), quoted)
    yield raw.hex()
    yield raw.hex().upper()
    # inside a longer text base64 has one of three offsets; the digits at both ends depend on the neighbours
    for shift in range(3):
        text = b64encode(b"\0" * shift + raw).decode().rstrip("=")
        whole = text[(0, 2, 3)[shift] : len(text) - ((shift + len(raw)) % 3 > 0)]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


# --- sealing and opening ----------------------------------------------------------------------------------------------


def _seal(value: Any, blobs: list[Blob]) -> dict[str, Json]:
    raw = encode_payload(value)
    if len(raw) > MAX_BYTES:
        raise IntakeError(fault("INTAKE_REFUSED", f"a value of {len(raw)} bytes; at most {MAX_BYTES} are accepted"))
    data = os.urandom(SALT_BYTES) + raw
    blobs.append(Blob(digest(data), data))
    return {SEALED_KEY: blobs[-1].digest, "size": len(raw)}


def _seal_member(item: Any, blobs: list[Blob]) -> dict[str, Json]:
    """Return a member of a payload sealed; the usage in a model's answer stays, because budgets count it."""
    if type(item) is dict and "usage" in item:
        rest = {name: part for name, part in item.items() if name not in _UNBOUNDED}
        if len(encode_payload(rest)) <= _SMALL:
            return {**rest, **{name: _seal(item[name], blobs) for name in _UNBOUNDED if name in item}}
    return _seal(item, blobs)


def _seal_at(value: Any, path: tuple[str, ...], blobs: list[Blob]) -> None:
    """Seal in place the values at *path* below *value*; missing and sealed ones are skipped."""
    step, deeper = path[0], path[1:]
    for key in _steps(value, step):
        item = value[key]
        if type(item) is dict and SEALED_KEY in item:
            continue
        if deeper:
            _seal_at(item, deeper, blobs)
        else:
            value[key] = _seal(item, blobs)


def _sealed_or_whole(value: dict[str, Any], payload: bytes, found: list[Blob]) -> bytes:
    """Encode *value*, unless too much was sealed in it for the limits of depth and size, or for one append.

    Then whole members of *payload* are sealed in which something was sealed.
    """
    if len(found) <= MAX_BLOBS:
        with suppress(IntakeError):
            return encode_payload(value)
    found.clear()
    before = decode(payload).items()
    return encode_payload({key: item if value[key] == item else _seal_member(item, found) for key, item in before})


def _steps(value: Any, step: str) -> Sequence[Any]:
    if type(value) is dict:
        return list(value) if step == "*" else [step] if step in value else []
    if type(value) is list:
        if step == "*":
            return range(len(value))
        return [int(step)] if re.fullmatch("0|[1-9][0-9]{0,6}", step) and int(step) < len(value) else []
    return []


def _fit(payload: bytes, blobs: list[Blob]) -> bytes:
    """Seal top-level members, largest first, until the payload has at most `MAX_INLINE` bytes."""
    if len(payload) <= MAX_INLINE:
        return payload
    value = decode(payload)
    size = len(payload)
    for key, item in sorted(value.items(), key=lambda member: -len(encode_payload(member[1]))):
        before = len(encode_payload(item))
        value[key] = _seal_member(item, blobs)
        size += len(encode(value[key])) - before
        if size <= MAX_INLINE:
            return encode_payload(value)
    raise IntakeError(fault("INTAKE_REFUSED", f"a payload of {len(payload)} bytes with too many members to be sealed"))


def is_sealed(value: Any) -> bool:
    """Return whether *value* is ``{"$sealed": digest, "size": n}``."""
    return (
        type(value) is dict
        and value.keys() == {SEALED_KEY, "size"}
        and type(value[SEALED_KEY]) is str
        and type(value["size"]) is int
        and bool(_SALTED.fullmatch(value[SEALED_KEY]))
    )


def open_value(folder: Folder, sealed: Object) -> Json:
    """Return the value that *sealed* commits to, read from ``sealed/`` in the ledger's *folder* and verified.

    Sealed values inside are also opened. An erased one raises `FileNotFoundError`; one that does not match its digest
    raises `LedgerError` (``LEDGER_UNSOUND``).
    """
    if not is_sealed(sealed):
        raise _unsound("not a sealed value", str(sealed)[:200])
    name, size = f"sealed/{sealed[SEALED_KEY]}", sealed["size"]
    try:
        raw = folder.read(name, limit=SALT_BYTES + min(max(size, 0), MAX_BYTES))
    except FileRefused as problem:
        raise _unsound(problem.error.message, problem.error.place or name) from problem
    if len(raw) != SALT_BYTES + size or digest(raw) != sealed[SEALED_KEY]:
        raise _unsound("its bytes are not those that the ledger commits to", f"{folder.path}/{name}")
    found: Json = open_values(folder, decode(raw[SALT_BYTES:]))
    return found


def digests_in(value: Any) -> Iterator[str]:
    """Yield the digest of every sealed value in *value*, without opening any."""
    if is_sealed(value):
        yield value[SEALED_KEY]
    for item in value.values() if type(value) is dict else value if type(value) is list else ():
        yield from digests_in(item)


def open_values(folder: Folder, value: Any) -> Any:
    """Return *value* with every sealed value in it opened; see `open_value`."""
    if is_sealed(value):
        return open_value(folder, value)
    if type(value) is dict:
        return {key: open_values(folder, item) for key, item in value.items()}
    return [open_values(folder, item) for item in value] if type(value) is list else value


def _unsound(why: str, place: str) -> LedgerError:
    return LedgerError(fault("LEDGER_UNSOUND", why, place=place))
