"""The upcasters of older event forms: a chain of pure functions that ends at the current form.

A *form* is that of a whole line: ``seed-000``, ``seed-002-unhashed``, ``1.0``, ``1.1``. A payload has a version of its
own: ``v1``, unless its member ``schema_version`` names another. Released forms and versions never change, so each
function is written once.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from deedbook.contract import Event
from deedbook.format.canonical import decode
from deedbook.format.errors import LedgerError, fault
from deedbook.format.events import ALIASES, FORMAT

from . import envelope_1_0, event_ledger, seed_000
from .envelope_1_0 import Row

Step: TypeAlias = Callable[[Event], Event]
"""Converts an event with a payload of one version to the next version."""

_VERSION: Final = re.compile("v[1-9][0-9]{0,3}")


def version(event: Event) -> str:
    """Return the version of the event's payload."""
    said = event.payload.get("schema_version")
    return said if isinstance(said, str) and _VERSION.fullmatch(said) else "v1"


def _rename(name: str) -> Step:
    return lambda event: attrs.evolve(event, type=name)


@attrs.frozen
class Upcasters:
    """The conversion of older events to current ones.

    *forms* names, for each older form, the next one and the function that converts a row; *payloads*, for each type and
    version that is no longer written, the function that converts it to the next: another version of its payload, or
    another name of its type.
    """

    forms: Mapping[str, tuple[str, Callable[[Row], Row]]]
    payloads: Mapping[str, Mapping[str, Step]] = attrs.field(factory=dict)

    def present(self, event: Event) -> Event:
        """Return *event*, read from a line of the current form, in its current version."""
        while event.type in self.payloads:
            step = self.payloads[event.type].get(version(event))
            if step is None:
                break
            event = step(event)
        return event

    def row(self, raw: bytes, form: str, place: str) -> Row:
        """Return a line of an older *form* as a row of the current one.

        Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that does not have that form.
        """
        try:
            row: Row = decode(raw)
            at = form
            while at in self.forms:
                at, step = self.forms[at]
                row = step(row)
        except (ValueError, KeyError, TypeError, AttributeError):
            why = f"not a line of {form_name(form)}; verify the file"
            raise LedgerError(fault("LEDGER_UNSOUND", why, place=place)) from None
        return row

    def event(self, raw: bytes, form: str, seq: int, place: str) -> tuple[str, Event]:
        """Return a line of an older *form* as its session and a current event with that *seq*.

        Raises `LedgerError` (``LEDGER_UNSOUND``) for a line that does not have that form.
        """
        row = self.row(raw, form, place)
        parent = row["parent_span_id"]
        event = Event(
            seq=seq,
            type=row["event_type"],
            actor=row["actor"],
            principal=row["principal"],
            span=str(row["span_id"] or f"line-{seq + 1}"),
            parent=None if parent is None else str(parent),
            ts=row["ts"],
            payload=row["payload"],
        )
        return row["session_id"], self.present(event)


UPCASTERS: Final = Upcasters(
    forms=MappingProxyType(
        {
            seed_000.FORM: (envelope_1_0.VERSION, seed_000.upcast),
            event_ledger.FORM: (envelope_1_0.VERSION, event_ledger.upcast),
            envelope_1_0.VERSION: (FORMAT, envelope_1_0.upcast),
        }
    ),
    payloads=MappingProxyType({old: MappingProxyType({"v1": _rename(new)}) for old, new in ALIASES.items()}),
)
"""All upcasters."""


def form_name(form: str) -> str:
    """Return the name of a form in messages."""
    return _NAMES.get(form) or f"envelope {form}"


_NAMES: Final = MappingProxyType({seed_000.FORM: "seed 000's events", event_ledger.FORM: "seed 002's EventLedger"})
