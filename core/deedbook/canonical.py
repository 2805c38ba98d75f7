"""Values to canonical bytes and back: RFC 8785 (JCS) JSON, the intake gate, SHA-256.

The law, for whatever intake accepts: ``encode(decode(encode(x))) == encode(x)``. orjson is the fast path where its bytes
are provably those of RFC 8785; floats outside that range are spelled here, since orjson's spelling of them has changed
between releases.
"""

import json
import math
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, Final, Literal

import orjson

from .errors import IntakeError, fault

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
MAX_INTEGER: Final = 2**53 - 1
SEALED_KEY: Final = "$sealed"

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
"""Read bytes that are known to be canonical; for anything from outside use `parse`."""


def digest(raw: bytes) -> str:
    """Return the SHA-256 of *raw* as 64 lower-case hex digits."""
    return _sha256(raw).hexdigest()


def encode(value: Any) -> bytes:
    """Return the RFC 8785 bytes of *value*.

    Accepts only what JSON has: ``None``, `bool`, `int` within ±(2^53-1), finite `float`, `str`, `list`, `dict` with
    `str` keys; no subclass, at most 64 levels and 100,000 nodes. Raises `IntakeError` (``INTAKE_REFUSED``).
    """
    plain = _walk(value)
    try:
        raw = _dumps(value, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as problem:
        raise _refusal(value, str(problem)) from None
    if plain and (raw.isascii() or not _needs_utf16_order(raw)):
        return raw
    return _dumps(_exact(value))


def admit(value: Any) -> bytes:
    """Return the canonical bytes of a value from outside: `encode`, at most 16 MiB, no object with a key ``$sealed``."""
    raw = encode(value)
    if len(raw) > MAX_BYTES:
        raise IntakeError(fault("INTAKE_REFUSED", f"{len(raw)} bytes; at most {MAX_BYTES} are accepted"))
    if b'"$sealed"' in raw:
        _refuse_sealed(value)
    return raw


def parse(text: bytes | str, *, big_integers: Literal["refuse", "string"] = "refuse") -> Any:
    """Read JSON from outside strictly: one UTF-8 document, no duplicate key, nothing that `admit` refuses.

    With *big_integers* ``"string"`` an integer beyond ±(2^53-1) is read as its digits.
    """
    if len(text) > MAX_BYTES:
        raise IntakeError(fault("INTAKE_REFUSED", f"{len(text)} bytes; at most {MAX_BYTES} are accepted"))
    try:
        value = json.loads(
            text.decode("utf-8", "strict") if isinstance(text, bytes) else text,
            object_pairs_hook=_unique,
            parse_int=_small_integer if big_integers == "refuse" else _integer_or_digits,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as problem:
        reason = str(problem) or "nested too deeply"
        raise IntakeError(fault("INTAKE_REFUSED", f"not acceptable JSON: {reason}")) from None
    admit(value)
    return value


def check_bindings() -> bool:
    """Say whether this module's own references still compute what they should (a plugin may have patched a library)."""
    golden = b'{"a":[1,1.5,"\xc3\xa9"],"b":null}'
    return (
        encode({"b": None, "a": [1.0, 1.5, "é"]}) == golden
        and digest(golden) == "801313ebd54c52bcf0052567d3c2b20441b63a3a21554ddf17a2bb7992889860"
    )


# --- the walk ---------------------------------------------------------------------------------------------------------


def _walk(value: Any) -> bool:
    """Check types, depth and size level by level; say whether orjson spells every number as RFC 8785 does."""
    plain = True
    level = [[value]]
    nodes = depth = 0
    while level:
        depth += 1
        deeper: list[Any] = []
        for container in level:
            nodes += len(container)
            for item in container.values() if type(container) is dict else container:
                kind = type(item)
                if kind is str or kind is int or kind is bool or item is None:
                    continue
                if kind is dict or kind is list:
                    deeper.append(item)
                elif kind is not float:
                    raise _refusal(value, f"{kind.__name__} is not a JSON type")
                elif not (1e-4 <= abs(item) < 1e16 and item % 1):
                    plain = False
        if deeper and (depth > MAX_DEPTH or nodes > MAX_NODES):
            raise _refusal(value, f"more than {MAX_DEPTH} levels or {MAX_NODES} nodes")
        level = deeper
    if nodes > MAX_NODES + 1:
        raise _refusal(value, f"more than {MAX_NODES} nodes")
    return plain


def _needs_utf16_order(raw: bytes) -> bool:
    """Say whether keys could order otherwise by UTF-16 code unit than by code point: U+E000 and up beside astral."""
    return (b"\xee" in raw or b"\xef" in raw) and any(lead in raw for lead in _ASTRAL_LEADS)


def _exact(value: Any) -> Any:
    """Rebuild *value* with keys in UTF-16 order and with floats as RFC 8785 spells them."""
    if type(value) is dict:
        return {key: _exact(value[key]) for key in sorted(value, key=_utf16)}
    if type(value) is list:
        return [_exact(item) for item in value]
    if type(value) is float:
        return _number(value)
    return value


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _number(value: float) -> int | orjson.Fragment:
    """Return *value* as ECMAScript's ``Number::toString`` spells it (ECMA-262, 6.1.6.1.20)."""
    if not math.isfinite(value):
        raise IntakeError(fault("INTAKE_REFUSED", f"{value} is not a JSON number"))
    if value % 1 == 0 and abs(value) < 1e21:  # noqa: PLR2004 - ECMAScript's limit for plain integers
        if abs(value) > MAX_INTEGER:
            raise IntakeError(fault("INTAKE_REFUSED", f"{value!r} is an integer beyond 2^53-1; send it as a string"))
        return int(value)
    return orjson.Fragment(_spell(value))


def _spell(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent or exponent.startswith("+"):
        return repr(value)
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    power = -int(exponent)
    if power <= 6:  # noqa: PLR2004 - ECMAScript's limit for leading zeros
        return f"{sign}0.{'0' * (power - 1)}{digits.replace('.', '')}"
    return f"{mantissa}e-{power}"


# --- refusals ---------------------------------------------------------------------------------------------------------


def _refusal(value: Any, reason: str) -> IntakeError:
    found = next(_faults(value), None)
    place, why = found or (None, reason)
    return IntakeError(fault("INTAKE_REFUSED", why, place=place))


def _faults(value: Any, path: str = "$", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield place and reason of what cannot be recorded; only asked when something is known to be wrong."""
    if depth > MAX_DEPTH:
        yield path[:200], f"more than {MAX_DEPTH} levels"
    elif type(value) is dict:
        for key, item in islice(value.items(), MAX_NODES):
            if type(key) is not str:
                yield path, f"key {key!r} is not a string"
            elif not _is_unicode(key):
                yield path, "a key holds a lone surrogate"
            else:
                yield from _faults(item, f"{path}.{key}", depth + 1)
    elif type(value) is list:
        for index, item in enumerate(islice(value, MAX_NODES)):
            yield from _faults(item, f"{path}[{index}]", depth + 1)
    else:
        yield from ((path, why) for why in _leaf_faults(value))


def _leaf_faults(value: Any) -> Iterator[str]:
    if type(value) is str:
        if not _is_unicode(value):
            yield "a string holds a lone surrogate"
    elif type(value) is int:
        if abs(value) > MAX_INTEGER:
            yield "an integer beyond 2^53-1; send it as a string"
    elif value is not None and type(value) not in (bool, float):
        yield f"{type(value).__name__} is not a JSON type"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse_sealed(value: Any, path: str = "$") -> None:
    if type(value) is dict:
        if SEALED_KEY in value:
            raise IntakeError(fault("INTAKE_REFUSED", f'a key "{SEALED_KEY}" is the ledger\'s own', place=path))
        for key, item in value.items():
            _refuse_sealed(item, f"{path}.{key}")
    elif type(value) is list:
        for index, item in enumerate(value):
            _refuse_sealed(item, f"{path}[{index}]")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r} appears twice")
    return made


def _small_integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:  # noqa: PLR2004 - sign and sixteen digits
        raise ValueError(f"integer {digits[:40]} is beyond 2^53-1; send it as a string")
    return int(digits)


def _integer_or_digits(digits: str) -> int | str:
    try:
        return _small_integer(digits)
    except ValueError:
        return digits


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
