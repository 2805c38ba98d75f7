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
    other object becomes ``{"type": …, "text": …}``, which says that the value itself is not recorded.
    """
    kind = type(value)
    if kind in _NATIVE:
        return value
    if depth <= 0:
        return _as_text(value)
    if kind is dict and all(type(name) is str for name in value):
        return {name: each if type(each) in _NATIVE else as_json(each, depth - 1) for name, each in value.items()}
    return _convert(value, depth)


def _convert(value: Any, depth: int) -> Any:
    """Return as JSON what is none of the plain types, which are by far the most."""
    if isinstance(value, Enum):
        return as_json(value.value, depth)
    if isinstance(value, _NUMBERS_AND_TEXT):
        return _plain(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        made = [as_json(each, depth - 1) for each in value]
        return made if isinstance(value, list | tuple) else sorted(made, key=repr)
    if isinstance(value, _AS_TEXT):
        return _as_plain_text(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_json(getattr(value, each.name), depth - 1) for each in fields(value)}
    return _as_model(value, depth)


def recorded_result(value: Any) -> Any:
    """Return the result of a tool as JSON that the ledger accepts; the effect has happened, so nothing is refused."""
    made = as_json(value)
    try:
        canonical.admit(made)
    except DeedbookError as problem:
        return {**_as_text(value), "refused": recordable(problem.error.message)}
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


def _as_model(value: Any, depth: int) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return as_json(dump(mode="json"), depth - 1)
        except Exception:  # noqa: BLE001 - a model that cannot be dumped is recorded as text
            return _as_text(value)
    return _as_text(value)


def _as_text(value: Any) -> dict[str, Any]:
    kind = type(value)
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the type is recorded all the same
        text = ""
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "text": recordable(text, _MAX_TEXT)}
