"""JSON pointers (RFC 6901): build them, split them, and find the values that they lead to; pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

POINTER: Final = "^(/([^~/]|~[01])*)*$"
"""The regular expression of every JSON pointer (RFC 6901 section 3); the empty one leads to the whole document."""

MEMBER_POINTER: Final = "^(/([^~/]|~[01])*)+$"
"""The regular expression of the JSON pointers to a member or an item: all but the empty one."""

_INVALID_ESCAPE: Final = re.compile("~(?![01])").search
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}").fullmatch


class InvalidPointerError(ValueError):
    """A text that is no JSON pointer (RFC 6901 section 3)."""


# --- build and split --------------------------------------------------------------------------------------------------


def escape(name: str | int) -> str:
    """Return the reference token of a key or an index: ``~`` becomes ``~0``, ``/`` becomes ``~1`` (RFC 6901, 3)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """Return the key that a reference token stands for (RFC 6901 section 4); leaves an invalid escape as it is."""
    return token.replace("~1", "/").replace("~0", "~")


def join_pointer(*names: str | int) -> str:
    """Return the JSON pointer (RFC 6901) that leads through *names*: keys and indices."""
    return "".join([f"/{escape(name)}" for name in names])


def split_pointer(pointer: str) -> list[str]:
    """Return the keys and indices that a JSON pointer leads through, as text, none for the empty pointer.

    Raises `InvalidPointerError` if *pointer* does not begin with a slash, or has a ``~`` without ``0`` or ``1`` after
    it (RFC 6901 section 3).
    """
    if pointer and pointer[0] != "/":
        raise InvalidPointerError(f"{pointer!r} is no JSON pointer; it is empty or begins with a slash, such as /name")
    if _INVALID_ESCAPE(pointer):
        raise InvalidPointerError(f"{pointer!r} is no JSON pointer; write ~0 for a tilde and ~1 for a slash in a name")
    return [unescape(token) for token in pointer.split("/")[1:]]


# --- find values ------------------------------------------------------------------------------------------------------


def get_member(value: Any, name: str, default: Any) -> Any:
    """Return the member or the item *name* of *value*, or *default* if there is none (RFC 6901 section 4).

    An index is decimal without leading zeros, and has at most nine digits; ``-``, the place after the last item, is
    never there.
    """
    if isinstance(value, Mapping):
        return value.get(name, default)
    if isinstance(value, list) and _INDEX(name) and int(name) < len(value):
        return value[int(name)]
    return default


def find_value(document: Any, pointer: str, default: Any) -> Any:
    """Return the value at *pointer* in *document*, or *default* if there is none.

    Raises `InvalidPointerError` if *pointer* is invalid.
    """
    value = document
    for name in split_pointer(pointer):
        value = get_member(value, name, _NOTHING)
        if value is _NOTHING:
            return default
    return value


_NOTHING: Final = object()


def follow_reference(schema: Any, reference: Any) -> Any:
    """Return what a local ``$ref`` of a JSON Schema leads to; ``None`` if it is no local one, or leads nowhere.

    The fragment is a JSON pointer (RFC 6901 section 6). Only members of objects are found, percent-encoding is not
    decoded, and an anchor leads to the whole schema. The schema is expected to be linted, so nothing is raised.
    """
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    value = schema
    for token in reference[1:].split("/")[1:]:
        value = value.get(unescape(token)) if isinstance(value, Mapping) else None
    return value
