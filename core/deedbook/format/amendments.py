"""Amendments: what a recorded event is said to be instead, by later events; pure. The recorded one stays as it is."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from deedbook.contract import Event, Object

TYPE: Final = "event.amended"
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


class Unfit(ValueError):  # noqa: N818 - it names what is wrong, as the other exceptions of the kernel do
    """A change that does not fit the payload."""


def parts(pointer: str) -> list[str]:
    """Return the segments of a JSON pointer (RFC 6901); raises `Unfit` for what is none, or names the whole."""
    if not pointer.startswith("/") or re.search("~(?![01])", pointer):
        raise Unfit(f"{pointer!r} is no JSON pointer to a member; expected one such as /args/text")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def at(value: Any, pointer: str) -> Any:
    """Return what stands at *pointer* in *value*; raises `Unfit` if nothing does."""
    for part in parts(pointer):
        value = _member(value, part, pointer)
    return value


def _member(value: Any, part: str, pointer: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
        return value[int(part)]
    raise Unfit(f"{pointer}: there is no {part!r}{_known(value)}")


def _known(value: Any) -> str:
    if isinstance(value, dict):
        return f"; there are {', '.join(sorted(value)[:10]) or 'no members'}"
    return f"; the list has {len(value)} items" if isinstance(value, list) else "; there is nothing below it"


def patched(payload: Object, patch: Iterable[Any]) -> dict[str, Any]:
    """Return *payload* with the changes of *patch* made in order; raises `Unfit` for one that does not fit."""
    made: dict[str, Any] = copy.deepcopy(dict(payload))
    for change in patch:
        pointer = change.get("at") if isinstance(change, dict) else None
        if not isinstance(pointer, str):
            raise Unfit("a change whose place is sealed, or that is none")
        *above, last = parts(pointer)
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
    """The amendments of a ledger, by the seq of the event that each is about."""

    told: dict[int, list[Event]] = attrs.field(factory=dict)

    def of(self, seq: int) -> Sequence[Event]:
        """Return the amendments of the event with that *seq*, in order."""
        return self.told.get(seq, ())

    def said(self, event: Event) -> Object:
        """Return the payload that *event* is said to have: all amendments made, and theirs made before.

        What cannot be made, because a part is sealed or was taken out, is left as it is.
        """
        payload = event.payload
        for amendment in self.of(event.seq):
            patch = self.said(amendment).get("patch")
            try:
                payload = patched(payload, patch if isinstance(patch, list) else ())
            except Unfit:
                continue
        return payload


class AmendmentsFold:
    """The fold whose state is `Amendments`."""

    def start(self) -> Amendments:
        """Return none."""
        return Amendments()

    def step(self, state: Amendments, event: Event) -> Amendments:
        """Take *event* in, if it is one; an event can be amended by a later one only."""
        seq = event.payload.get("seq")
        if event.type == TYPE and type(seq) is int and seq < event.seq:
            state.told.setdefault(seq, []).append(event)
        return state
