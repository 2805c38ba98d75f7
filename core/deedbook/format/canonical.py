"""Convert values to canonical bytes and back: RFC 8785 (JCS) JSON, the intake gate, SHA-256.

For every value that intake accepts: ``encode(decode(encode(x))) == encode(x)``. orjson is used where its bytes are
proven to equal those of RFC 8785; other floats are written here, since orjson's notation of them has changed between
releases.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal

import orjson

from .errors import IntakeError, NotJsonError, fault
from .jsontext import load

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
PAYLOAD_DEPTH: Final = 72
"""A payload may wrap accepted values in a few levels of its own, and hold them twice."""
PAYLOAD_NODES: Final = 600_000
MAX_TEXT: Final = 4 * MAX_BYTES
"""How many characters all texts and keys of a value may have together. One text can stand in many places, so that a
small value in memory would be written out as a huge one; `admit` allows `MAX_BYTES`."""
MAX_INTEGER: Final = 2**53 - 1
MAX_DIGIT_BITS: Final = 4096
"""Longer integers are refused even where large ones are read as digits: their conversion takes quadratic time."""
MAX_DIGITS: Final = 1200
"""The most digits of an integer that is read as digits; they need fewer than `MAX_DIGIT_BITS`."""
SEALED_KEY: Final = "$sealed"

_MAX_NAME: Final = 80
_MAX_PATH: Final = 160
_PLAIN: Final = 1e21  # from here on ECMAScript writes an exponent
_SCALARS: Final = frozenset({str, int, bool, type(None)})
_ASTRAL_LEADS: Final = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
_STRICT: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_dumps: Final = orjson.dumps
_sha256: Final = sha256

decode: Final = orjson.loads
"""Decode bytes that are known to be canonical; use `parse` for anything from outside."""


def digest(raw: bytes) -> str:
    """Return the SHA-256 of *raw* as 64 lower-case hex digits."""
    return _sha256(raw).hexdigest()


def encode(value: Any, depth: int = MAX_DEPTH, nodes: int = MAX_NODES, text: int = MAX_TEXT) -> bytes:
    """Return the RFC 8785 bytes of *value*.

    Accepts only JSON types: ``None``, `bool`, `int` within ±(2^53-1), finite `float`, `str`, `list`, `dict` with `str`
    keys; no subclass, at most *depth* levels, *nodes* values and *text* characters. Raises `IntakeError`
    (``INTAKE_REFUSED``).
    """
    plain = _walk(value, depth, nodes, text)
    try:
        exact = value if plain else _respell(value)
        raw = _dumps(exact, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as problem:
        raise _refusal(value, str(problem), depth) from None
    if raw.isascii() or not _needs_utf16_order(raw):
        return raw
    return _dumps(_reorder(exact))


def encode_payload(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a ledger's payload: `encode` with higher limits."""
    return encode(value, PAYLOAD_DEPTH, PAYLOAD_NODES)


def admit(value: Any) -> bytes:
    """Return the canonical bytes of a value from outside: `encode`, at most 16 MiB, and no key ``$sealed``."""
    raw = encode(value, text=MAX_BYTES)
    if len(raw) > MAX_BYTES:
        raise IntakeError(fault("INTAKE_REFUSED", f"{len(raw)} bytes; at most {MAX_BYTES} are accepted"))
    if b'"$sealed"' in raw:
        _refuse_sealed(value)
    return raw


def parse(text: bytes | str, *, big_integers: Literal["refuse", "string", "keep"] = "refuse") -> Any:
    """Parse JSON from outside strictly: one UTF-8 document, no duplicate key, nothing that `admit` refuses.

    *big_integers* selects the result for an integer beyond ±(2^53-1): ``"string"`` gives its digits, ``"keep"`` the
    integer, of at most `MAX_DIGITS` digits, for an ability that handles it itself. Raises `IntakeError`, or
    `NotJsonError` if *text* is not JSON at all.
    """
    if len(text) > MAX_BYTES:
        raise IntakeError(fault("INTAKE_REFUSED", f"{len(text)} bytes; at most {MAX_BYTES} are accepted"))
    value = _read(text, _INTEGERS[big_integers])
    admit(without_big_integers(value) if big_integers == "keep" else value)
    return value


def parse_payload(text: bytes | str) -> Any:
    """Parse JSON as strictly as `parse`, with the limits of a ledger's payload; a key ``$sealed`` is allowed."""
    value = _read(text, _small_integer)
    encode_payload(value)
    return value


def without_big_integers(value: Any) -> Any:
    """Return *value* with each integer beyond ±(2^53-1) as its decimal digits, for abilities that accept that.

    Raises `IntakeError` if the value is not JSON, or too large.
    """
    _walk(value, MAX_DEPTH, MAX_NODES, MAX_BYTES)
    return _with_digits(value)


def check_bindings() -> bool:
    """Return whether this module's own references still compute correctly (a plugin may have patched a library)."""
    golden = b'{"a":[1,1.5,"\xc3\xa9"],"b":null}'
    return (
        encode({"b": None, "a": [1.0, 1.5, "é"]}) == golden
        and digest(golden) == "801313ebd54c52bcf0052567d3c2b20441b63a3a21554ddf17a2bb7992889860"
    )


# --- the walk ---------------------------------------------------------------------------------------------------------


def _walk(value: Any, depth: int, most: int, text: int) -> bool:  # noqa: C901, PLR0912 - the hot loop; a call for each value would double its cost
    """Check types, depth and size level by level; return whether orjson writes every number as RFC 8785 does."""
    plain = True
    wrapped = type(value) is not dict  # a dictionary, as most values are, saves a turn of the loop
    level: list[Collection[Any]] = [(value,)] if wrapped else [value, value.values()]
    nodes, left = (0, depth + 1) if wrapped else (1 - len(value), depth)
    left_text, join = text, "".join  # joining keys is several times as fast as adding up their lengths
    while left > 0:
        deeper: list[Collection[Any]] = []
        for items in level:
            nodes += len(items)
            if nodes > most:
                raise _refusal(value, f"more than {most} nodes", depth)
            for item in items:
                kind = type(item)
                if kind is str:
                    left_text -= len(item)
                    continue
                if kind in _SCALARS:
                    continue
                if kind is dict:
                    deeper.append(item.values())
                    try:
                        left_text -= len(join(item))
                    except TypeError:
                        raise _refusal(value, "a key is not a string", depth) from None
                    if left_text < 0:
                        break
                elif kind is list:
                    deeper.append(item)
                elif kind is not float:
                    raise _refusal(value, f"{kind.__name__} is not a JSON type", depth)
                elif not ((1e-4 <= item < 1e16 or -1e16 < item <= -1e-4) and item % 1.0):
                    plain = False
            if left_text < 0:
                raise _refusal(value, f"texts of more than {text} characters; at most {text} are accepted", depth)
        if not deeper:
            return plain
        level, left = deeper, left - 1
    raise _refusal(value, f"more than {depth} levels", depth)


def _with_digits(value: Any) -> Any:
    if type(value) is int:
        return str(value) if abs(value) > MAX_INTEGER and value.bit_length() < MAX_DIGIT_BITS else value
    if type(value) is list:
        return [_with_digits(item) for item in value]
    if type(value) is dict:
        return {key: _with_digits(item) for key, item in value.items()}
    return value


def _needs_utf16_order(raw: bytes) -> bool:
    """Return whether keys may sort differently by UTF-16 code unit than by code point: U+E000 and up beside astral."""
    return (b"\xee" in raw or b"\xef" in raw) and any(lead in raw for lead in _ASTRAL_LEADS)


def _respell(value: Any) -> Any:
    """Rebuild *value* with floats in the notation of RFC 8785."""
    if type(value) is dict:
        return {key: item if type(item) in _SCALARS else _respell(item) for key, item in value.items()}
    if type(value) is list:
        return [item if type(item) in _SCALARS else _respell(item) for item in value]
    return _number(value) if type(value) is float else value


def _reorder(value: Any) -> Any:
    """Rebuild *value* with keys in UTF-16 order."""
    if type(value) is dict:
        return {key: _reorder(value[key]) for key in sorted(value, key=lambda key: key.encode("utf-16-be"))}
    return [_reorder(item) for item in value] if type(value) is list else value


def _number(value: float) -> int | float | orjson.Fragment:
    """Return a value that orjson writes as ECMAScript's ``Number::toString`` writes *value* (ECMA-262, 6.1.6.1.20)."""
    if value % 1.0 and 1e-4 <= abs(value) < 1e16:
        return value
    for why in _float_faults(value):
        raise ValueError(why)
    return int(value) if value % 1.0 == 0 and abs(value) < _PLAIN else orjson.Fragment(_spell(value))


def _spell(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent or exponent.startswith("+"):
        return repr(value)
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    power = -int(exponent)
    if power <= 6:  # ECMAScript's limit for leading zeros
        return f"{sign}0.{'0' * (power - 1)}{digits.replace('.', '')}"
    return f"{mantissa}e-{power}"


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refusal(value: Any, reason: str, limit: int) -> IntakeError:
    """Return the error with the first place that explains it; otherwise *reason*."""
    for path, item, depth in islice(_nodes(value, limit), MAX_NODES + 1):
        for why in _faults(item, depth, limit):
            return IntakeError(fault("INTAKE_REFUSED", why, place=path))
    return IntakeError(fault("INTAKE_REFUSED", reason))


def _nodes(value: Any, limit: int, path: str = "$", depth: int = 0) -> Iterator[tuple[str, Any, int]]:
    """Yield each value with its path and the number of containers around it, lazily, in document order.

    A path holds only whole names: the beginning of one that is a secret could not be masked any more.
    """
    yield path, value, depth
    if depth >= limit:
        return
    if type(value) is dict:
        for key, item in value.items():
            name = f".{key}" if len(key) <= _MAX_NAME else f".[a name of {len(key)} characters]"
            yield from _nodes(item, limit, _join_path(path, name), depth + 1)
    elif type(value) is list:
        for index, item in enumerate(value):
            yield from _nodes(item, limit, _join_path(path, f"[{index}]"), depth + 1)


def _join_path(path: str, step: str) -> str:
    return path if path.endswith("…") else f"{path}{step}" if len(path) < _MAX_PATH else f"{path}…"


def _faults(value: Any, depth: int, limit: int) -> Iterator[str]:
    """Yield why *value* itself cannot be recorded; its content is checked separately."""
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= limit:
            yield f"more than {limit} levels"
        elif kind is dict:
            yield from (why for key in value for why in _key_faults(key))
    elif kind is str:
        if not _is_unicode(value):
            yield "a string holds a lone surrogate"
    elif kind is int:
        if abs(value) > MAX_INTEGER:
            yield "an integer beyond 2^53-1; send it as a string"
    elif kind is float:
        yield from _float_faults(value)
    elif kind not in _SCALARS:
        yield f"{kind.__name__} is not a JSON type"


def _key_faults(key: Any) -> Iterator[str]:
    if type(key) is not str:
        yield f"a key is {type(key).__name__}, not a string"
    elif not _is_unicode(key):
        yield "a key holds a lone surrogate"


def _float_faults(value: float) -> Iterator[str]:
    if not math.isfinite(value):
        yield f"{value} is not a JSON number"
    elif MAX_INTEGER < abs(value) < _PLAIN:
        yield f"{value!r} is an integer beyond 2^53-1; send it as a string"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse_sealed(value: Any) -> None:
    for path, item, _ in _nodes(value, MAX_DEPTH):
        if type(item) is dict and SEALED_KEY in item:
            raise IntakeError(fault("INTAKE_REFUSED", f'a key "{SEALED_KEY}" is the ledger\'s own', place=path))


def _read(text: bytes | str, parse_int: Callable[[str], Any]) -> Any:
    try:
        return load(text, parse_int)
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise NotJsonError(fault("INTAKE_REFUSED", f"not acceptable JSON: {problem}")) from None
    except ValueError as problem:
        raise IntakeError(fault("INTAKE_REFUSED", f"not acceptable JSON: {problem}")) from None


def _small_integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:
        raise ValueError(f"integer {digits[:40]} is beyond 2^53-1; send it as a string")
    return int(digits)


def _integer_or_digits(digits: str) -> int | str:
    try:
        return _small_integer(digits)
    except ValueError:
        return digits


def _bounded_integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits; send it as a string")
    return int(digits)


_INTEGERS: Final = MappingProxyType({"refuse": _small_integer, "string": _integer_or_digits, "keep": _bounded_integer})
