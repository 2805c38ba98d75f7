"""The values of a program as JSON: what a policy judges and the ledger records."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from deedbook.format import canonical
from deedbook.format.errors import DeedbookError, recordable

_NATIVE: Final = frozenset({str, int, float, bool, type(None)})
_NUMBERS_AND_TEXT: Final = (str, int, float)
_TIMES: Final = (datetime, date, time)
_AS_TEXT: Final = (PurePath, UUID, Decimal, bytes, timedelta, *_TIMES)
_MAX_TEXT: Final = 2000


def as_json(value: Any, depth: int = 64) -> Any:
    """Return *value* as JSON.

    Numbers, texts, lists and objects stay as they are, also where intake refuses them later (such as NaN). A set is a
    sorted list, a time span has the form of ISO 8601, and bytes in UTF-8 are text, as frameworks describe them to a
    model. Dataclasses, models with ``model_dump`` and common types of the standard library become their JSON form. Any
    other object becomes ``{"type": …, "text": …}``, which says that the value itself is not recorded. A value that
    unfolds into more than `canonical.MAX_NODES` is cut behind them, and intake refuses it: one object can stand in many
    places.
    """
    return _Conversion().convert(value, depth)


class _Conversion:
    """The conversion of one value; *left* is the number of values that it may still have."""

    def __init__(self) -> None:
        self.left = canonical.MAX_NODES

    def convert(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _NATIVE:
            return value
        if depth <= 0 or self.left < 0:
            return _as_text(value, whole=self.left >= 0)
        if kind is dict and all(type(name) is str for name in value):
            self.left -= len(value)
            return {
                name: each if type(each) in _NATIVE else self.convert(each, depth - 1) for name, each in value.items()
            }
        return self._convert(value, depth)

    def _convert(self, value: Any, depth: int) -> Any:
        """Return as JSON what is none of the plain types, which are by far the most."""
        if isinstance(value, Enum):
            return self.convert(value.value, depth)
        if isinstance(value, _NUMBERS_AND_TEXT):
            return _plain(value)
        if isinstance(value, Mapping):
            self.left -= len(value)
            return {_key(name): self.convert(each, depth - 1) for name, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            self.left -= len(value)
            made = [self.convert(each, depth - 1) for each in value]
            return made if isinstance(value, list | tuple) or self.left < 0 else sorted(made, key=repr)
        if isinstance(value, _AS_TEXT):
            return _as_plain_text(value)
        if is_dataclass(value) and not isinstance(value, type):
            names = [each.name for each in fields(value)]
            self.left -= len(names)
            return {name: self.convert(getattr(value, name), depth - 1) for name in names}
        return self._model(value, depth)

    def _model(self, value: Any, depth: int) -> Any:
        dump = getattr(value, "model_dump", None)
        if callable(dump) and not isinstance(value, type):
            try:
                return self.convert(dump(mode="json"), depth - 1)
            except Exception:  # noqa: BLE001 - a model that cannot be dumped is recorded as text
                return _as_text(value)
        return _as_text(value)


def recorded_result(value: Any) -> Any:
    """Return the result of a tool as JSON that the ledger accepts; the effect has happened, so nothing is refused."""
    conversion = _Conversion()
    made = conversion.convert(value, 64)
    try:
        canonical.admit(made)
    except DeedbookError as problem:
        return {**_as_text(value, whole=conversion.left >= 0), "refused": recordable(problem.error.message)}
    return made


def _plain(value: Any) -> Any:
    """Return *value* as its JSON type itself: the ledger takes no subclasses of text and numbers."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return value


def _as_plain_text(value: Any) -> Any:
    if isinstance(value, timedelta):
        span = abs(value)
        fraction = f".{span.microseconds:06}" if span.microseconds else ""
        return f"{'' if value == span else '-'}P{span.days}DT{span.seconds}{fraction}S"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return _as_text(value)
    return value.isoformat() if isinstance(value, _TIMES) else str(value)


def _key(name: Any) -> str:
    return str(name) if isinstance(name, _NUMBERS_AND_TEXT) else _as_text(name)["text"]


def _as_text(value: Any, *, whole: bool = True) -> dict[str, Any]:
    """Return the type and the text of *value*; without *whole* no text, since it would unfold shared objects."""
    kind = type(value)
    try:
        text = repr(value) if whole else ""
    except Exception:  # noqa: BLE001 - the type is recorded all the same
        text = ""
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "text": recordable(text, _MAX_TEXT)}
