"""Read a value of a program once: its JSON form, which is judged and recorded, and the copy that is used."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from inspect import isawaitable, iscoroutine, isgenerator
from itertools import accumulate, chain, count, cycle, dropwhile, filterfalse, islice, repeat, starmap, takewhile
from math import isnan
from numbers import Integral, Rational, Real
from pathlib import Path, PurePath
from reprlib import Repr
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID

from deedbook.format import canonical
from deedbook.format.errors import IntakeError, describe, fault, recordable


@contextmanager
def _open() -> Iterator[None]:
    """Be of the type of all context managers that are generators."""
    yield


@asynccontextmanager
async def _aopen() -> AsyncIterator[None]:
    """Act like `_open`, for asynchronous ones."""
    yield


_NATIVE: Final = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_TIMES: Final = (datetime, date, time)
_AS_TEXT: Final = (PurePath, UUID, bytes, timedelta, *_TIMES)
_IMMUTABLE: Final = frozenset({bytes, date, timedelta, UUID, type(PurePath()), type(Path())})
_KEYS_AS_TEXT: Final = (*_AS_TEXT, Decimal)
_LAZY: Final[tuple[type, ...]] = (
    Generator, AsyncGenerator, map, filter, zip, enumerate, type(_open()), type(_aopen()),
    accumulate, chain, count, cycle, dropwhile, filterfalse, islice, repeat, starmap, takewhile,
)  # fmt: skip
"""Types of results that act when they are read or entered, after the tool returned."""
_MAX_TEXT: Final = 2000
_SHORT: Final = Repr()
_SHORT.maxother = _SHORT.maxstring = 200


class Copy(NamedTuple):
    """A value of a program: *json* is judged and recorded, *value* is used.

    *value* has lists, objects, sets, numbers and texts of its own, of no subclass. If it is *shared*, it also has
    objects of the program, whose JSON form may change later.
    """

    json: Any
    value: Any
    shared: bool


class ActsLaterError(Exception):
    """A result acts after the tool returned, so no outcome can be recorded now; the message says what it is."""


def copy_argument(value: Any) -> Copy:
    """Copy *value* for a tool, and return the copy with the JSON form that is judged.

    Raises `IntakeError` for a value that cannot be judged as it is used: too deep, too large, with two keys of the same
    text, or a number or a member of an enumeration that JSON would change.
    """
    copier = _Copier(is_argument=True)
    json, made = _run(copier, value)
    return Copy(json, made, copier.shared)


def json_form(value: Any, *, is_final: bool = False) -> Any:
    """Return the JSON form of *value*; a number that JSON would change is text.

    Raises `IntakeError` for a value that is too deep or too large, cannot be read, or has two keys of the same text. If
    *is_final*, raises `ActsLaterError` for what acts after it was returned.
    """
    return _run(_Copier(is_final=is_final), value)[0]


def _run(copier: "_Copier", value: Any) -> tuple[Any, Any]:
    try:
        return copier.copy(value, canonical.MAX_DEPTH)
    except (IntakeError, ActsLaterError):
        raise
    except Exception as problem:  # noqa: BLE001 - an object of the program fails when it is read
        _refuse(f"it cannot be read: {describe(problem)}")


def as_text(value: Any) -> dict[str, Any]:
    """Return the JSON form of an object that has none of its own; a long text is shortened, with its SHA-256."""
    kind = type(value)
    try:
        text = _SHORT.repr(value) if kind in _CONTAINERS else repr(value)
    except Exception:  # noqa: BLE001 - the type is recorded all the same
        text = ""
    made = {"type": f"{kind.__module__}.{kind.__qualname__}", "text": recordable(text, _MAX_TEXT)}
    if len(text) > _MAX_TEXT:
        made["sha256"] = canonical.digest(text.encode("utf-8", "backslashreplace"))
    return made


class _Copier:
    """Copies one value, or fails. *shared* says that the copy has an object of the program.

    For an argument it refuses a number that JSON would change; for what is to be final, what acts later.
    """

    def __init__(self, *, is_argument: bool = False, is_final: bool = False) -> None:
        self.shared = False
        self._is_argument, self._is_final = is_argument, is_final
        self._left = canonical.MAX_NODES

    def copy(self, value: Any, depth: int) -> tuple[Any, Any]:
        """Return the JSON form and the copy of *value*: the same object if it is plain JSON."""
        kind = type(value)
        if kind in _NATIVE:
            return value, value
        if depth <= 0:
            _refuse(f"more than {canonical.MAX_DEPTH} levels")
        if kind is dict:
            return self._copy_items(list(value.items()), depth)
        if kind is list:
            return self._copy_list(list(value), depth)
        return self._convert(value, depth)

    def _copy_items(self, items: list[tuple[Any, Any]], depth: int) -> tuple[Any, Any]:
        self._count(items)
        json, made, is_plain = {}, {}, True
        for key, each in items:
            name, own = (key, key) if type(key) is str else self._copy_key(key)
            if name in json:
                _refuse(f"two keys of one object are {name[:80]!r} as text")
            form, copy = (each, each) if type(each) in _NATIVE else self.copy(each, depth - 1)
            json[name], made[own] = form, copy
            is_plain = is_plain and form is copy and name is own
        return json, (json if is_plain else made)

    def _copy_list(self, items: list[Any], depth: int) -> tuple[list[Any], list[Any]]:
        self._count(items)
        pairs = [(each, each) if type(each) in _NATIVE else self.copy(each, depth - 1) for each in items]
        json = [form for form, _ in pairs]
        return json, (json if all(form is copy for form, copy in pairs) else [copy for _, copy in pairs])

    def _count(self, items: list[Any]) -> None:
        self._left -= len(items)
        if self._left < 0:
            _refuse(f"more than {canonical.MAX_NODES} values")

    def _copy_key(self, key: Any) -> tuple[str, Any]:
        """Return the text of a key that is no plain text, and the key to use."""
        if isinstance(key, Enum):
            form, own = self._copy_member(key, 1)
            return str(form), own
        if (number := _plain(key)) is not None:
            return str(number), number
        if key is None or isinstance(key, _KEYS_AS_TEXT):
            return str(key), key
        if type(key) is tuple and all(type(each) in _NATIVE for each in key):
            return str(key), key
        return _refuse(f"a key is {type(key).__name__}, which has no text of its own")

    def _convert(self, value: Any, depth: int) -> tuple[Any, Any]:
        """Copy what is none of the plain types, which are by far the most."""
        if isinstance(value, Enum):
            return self._copy_member(value, depth)
        if (plain := _plain(value)) is not None:
            return plain, plain
        if isinstance(value, _CONTAINERS):
            return self._copy_container(value, depth)
        if isinstance(value, Decimal | Fraction):
            exact = Decimal(value) if isinstance(value, Decimal) else Fraction(value.numerator, value.denominator)
            return (_exact_number(exact) if self._is_argument else str(exact)), exact
        if type(value) is bytearray:
            return as_text(value), bytearray(value)
        return self._keep(value, depth), value

    def _copy_container(self, value: Any, depth: int) -> tuple[Any, Any]:
        """Copy a container of any subclass by its content, whatever its methods answer."""
        if isinstance(value, dict):
            return self._copy_items(list(dict.items(value)), depth)
        if isinstance(value, list):
            return self._copy_list(list(list.__iter__(value)), depth)
        if isinstance(value, tuple):
            json, parts = self._copy_list(list(tuple.__iter__(value)), depth)
            return json, _copy_tuple(type(value), parts)
        kind = set if isinstance(value, set) else frozenset
        json, parts = self._copy_list(list(kind.__iter__(value)), depth)
        made = kind(parts)
        if len(made) != len(parts):
            _refuse(f"a {type(value).__name__} has values that are equal to each other")
        return sorted(json, key=repr), made

    def _copy_member(self, member: Enum, depth: int) -> tuple[Any, Any]:
        """Return the value of a member of an enumeration, and the member, which is used; both must be the same."""
        json, _ = self.copy(member.value, depth)
        plain = _plain(member)
        if plain is not None and (type(plain) is not type(json) or plain != json):
            _refuse(f"{type(member).__name__}.{member.name} is {plain!r} with the value {recordable(repr(json), 80)}")
        self.shared = self.shared or type(json) not in _NATIVE
        return json, member

    def _keep(self, value: Any, depth: int) -> Any:
        """Return the JSON form of an object of the program that is used itself."""
        if self._is_final and (isinstance(value, _LAZY) or isawaitable(value)):
            close_unused(value)
            raise ActsLaterError(f"a value of the type {type(value).__name__} acts after the tool returned")
        self.shared = self.shared or type(value) not in _IMMUTABLE
        if isinstance(value, _AS_TEXT):
            return _plain_text(value)
        if isinstance(value, Mapping):
            return self._copy_items(list(value.items()), depth)[0]
        if is_dataclass(value) and not isinstance(value, type):
            return self._copy_items([(each.name, getattr(value, each.name)) for each in fields(value)], depth)[0]
        dump = None if isinstance(value, type) else getattr(value, "model_dump", None)
        return self._copy_model(value, dump, depth) if callable(dump) else as_text(value)

    def _copy_model(self, value: Any, dump: Any, depth: int) -> Any:
        try:
            dumped = dump(mode="json")
        except Exception:  # noqa: BLE001 - a model that cannot be dumped is recorded as text
            return as_text(value)
        return self.copy(dumped, depth - 1)[0]


def close_unused(value: Any) -> None:
    """Close a generator or a coroutine that nobody will read: what has not begun then never does."""
    if isgenerator(value) or iscoroutine(value):
        with suppress(Exception):
            value.close()


def _refuse(why: str) -> NoReturn:
    raise IntakeError(fault("INTAKE_REFUSED", why))


def _plain(value: Any) -> Any:
    """Return a text or a number of a subclass, or a number of a library, as its plain type; ``None`` for others.

    The methods of a subclass are not asked: they could say something else than what is recorded.
    """
    if type(value) in _NATIVE:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Integral):
        return int(value)
    if not isinstance(value, Real) or isinstance(value, Rational):
        return None
    number = float(value)
    return number if number == value or isnan(number) else None


def _copy_tuple(kind: type, parts: list[Any]) -> tuple[Any, ...]:
    """Return a named tuple of *kind* if its fields are its *parts*, otherwise a tuple."""
    names = getattr(kind, "_fields", None)
    if kind is tuple or not isinstance(names, Iterable):
        return tuple(parts)
    made: tuple[Any, ...] = tuple.__new__(kind, parts)
    read = [*(getattr(made, name, kind) for name in names)]
    fits = len(read) == len(parts) and all(one is other for one, other in zip(read, parts, strict=True))
    return made if fits and all(one is other for one, other in zip(made, parts, strict=True)) else tuple(parts)


def _exact_number(value: Decimal | Fraction) -> int | float:
    """Return *value* as the JSON number that is the same."""
    if isinstance(value, Fraction) or value.is_finite():
        is_whole = value.denominator == 1 if isinstance(value, Fraction) else value == value.to_integral_value()
        if is_whole and -canonical.MAX_INTEGER <= value <= canonical.MAX_INTEGER:
            return int(value)
        with suppress(OverflowError):
            number = float(value)
            if not is_whole and type(value)(repr(number)) == value:
                return number
    return _refuse(f"{type(value).__name__} {str(value)[:80]} is no number that JSON holds exactly")


def _plain_text(value: Any) -> Any:
    if isinstance(value, timedelta):
        span = abs(value)
        fraction = f".{span.microseconds:06}" if span.microseconds else ""
        return f"{'' if value == span else '-'}P{span.days}DT{span.seconds}{fraction}S"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return as_text(value)
    return value.isoformat() if isinstance(value, _TIMES) else str(value)
