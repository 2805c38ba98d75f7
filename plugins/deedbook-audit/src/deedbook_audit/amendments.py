"""Amendments: later events that correct the payload of a recorded event; pure. The recorded event stays as it is."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object
from deedbook.contract.pointers import InvalidPointerError, get_member, split_pointer
from deedbook.format.folds import AMENDED

_NOTHING: Final = object()


class InvalidPatch(ValueError):  # noqa: N818 - a fault of the input, like the kernel's other exceptions
    """A change that does not fit the payload."""


def _split(pointer: str) -> list[str]:
    """Return the names that *pointer* leads through; raises `InvalidPatch` for an invalid or the empty pointer."""
    with suppress(InvalidPointerError):
        if names := split_pointer(pointer):
            return names
    raise InvalidPatch(f"{pointer!r} is no JSON pointer to a member; expected one such as /args/text")


def value_at(value: Any, pointer: str) -> Any:
    """Return the value at *pointer* in *value*; raises `InvalidPatch` if there is none."""
    for part in _split(pointer):
        value = _member(value, part, pointer)
    return value


def _member(value: Any, part: str, pointer: str) -> Any:
    found = get_member(value, part, _NOTHING)
    if found is _NOTHING:
        raise InvalidPatch(f"{pointer}: there is no {part!r}{_member_hint(value)}")
    return found


def _member_hint(value: Any) -> str:
    if isinstance(value, dict):
        return f"; there are {', '.join(sorted(value)[:10]) or 'no members'}"
    return f"; the list has {len(value)} items" if isinstance(value, list) else "; there is nothing below it"


def apply_patch(payload: Object, patch: Iterable[Any]) -> dict[str, Any]:
    """Return *payload* with the changes of *patch* in order; raises `InvalidPatch` for one that does not fit."""
    made: dict[str, Any] = copy.deepcopy(dict(payload))
    for change in patch:
        pointer = change.get("at") if isinstance(change, dict) else None
        if not isinstance(pointer, str):
            raise InvalidPatch("an invalid change, or one inside a sealed value")
        *above, last = _split(pointer)
        inner: Any = made
        for part in above:
            inner = _member(inner, part, pointer)
        _change(inner, last, pointer, change)
    return made


def _change(inner: Any, last: str, pointer: str, change: Mapping[str, Any]) -> None:
    if isinstance(inner, dict) and "value" in change:
        inner[last] = copy.deepcopy(change["value"])
        return
    _member(inner, last, pointer)
    key: Any = int(last) if isinstance(inner, list) else last
    if "value" in change:
        inner[key] = copy.deepcopy(change["value"])
    else:
        del inner[key]


@attrs.define
class Amendments:
    """The amendments of a ledger, by the seq of the amended event."""

    events: dict[int, list[Event]] = attrs.field(factory=dict)

    def of(self, seq: int) -> Sequence[Event]:
        """Return the amendments of the event *seq*, in order."""
        return self.events.get(seq, ())

    def amended_payload(self, event: Event) -> Object:
        """Return the payload of *event* with all its amendments, themselves amended first.

        A change that cannot be made, because a part is sealed or removed, is left out.
        """
        payload = event.payload
        for amendment in self.of(event.seq):
            patch = self.amended_payload(amendment).get("patch")
            try:
                payload = apply_patch(payload, patch if isinstance(patch, list) else ())
            except InvalidPatch:
                continue
        return payload


class AmendmentsFold:
    """The fold whose state is `Amendments`."""

    def start(self) -> Amendments:
        """Return no amendments."""
        return Amendments()

    def step(self, state: Amendments, event: Event) -> Amendments:
        """Add *event* if it is an amendment; only a later event can amend an event."""
        seq = event.payload.get("seq")
        if event.type == AMENDED and type(seq) is int and seq < event.seq:
            state.events.setdefault(seq, []).append(event)
        return state
