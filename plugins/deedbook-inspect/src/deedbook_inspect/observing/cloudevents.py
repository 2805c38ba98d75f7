"""Events as CloudEvents 1.0 in JSON, one per line; pure. The specification: https://github.com/cloudevents/spec."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from deedbook.format.families import NOTHING_DECLARED, DeclaredTypes, schema_of
from deedbook.format.terminal import plain

from .ledger_reader import LedgerEvent
from .times import parse_time

__all__ = ["CONTENT_TYPE", "encode_events"]

CONTENT_TYPE: Final = "application/cloudevents+json"
"""The media type of one event; a file of them is JSON lines."""

_SUBJECTS: Final = ("tool_name", "ability", "flow", "name", "skill", "to")


def encode_events(
    events: Iterable[LedgerEvent], *, source: str = "", data: bool = True, declared: DeclaredTypes = NOTHING_DECLARED
) -> Iterator[bytes]:
    r"""Yield events in structured mode, each with its ``\n``.

    *source* is a URI; if it is empty, the ledger's is used. *data*: include payloads, in which sealed values stay
    sealed.
    """
    for each in events:
        head = json.dumps(_build_attributes(each, source, declared), separators=(",", ":")).encode()
        yield head[:-1] + (_encode_data(each) if data else b"") + b"}\n"


def _build_attributes(each: LedgerEvent, source: str, declared: DeclaredTypes) -> dict[str, Any]:
    event = each.event
    attributes: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"{each.session}:{event.seq}",
        "source": source or f"urn:deedbook:ledger:{each.session}",
        "type": f"deedbook.{event.type}.v1",
        "subject": _find_subject(each),
        "time": event.ts if parse_time(event.ts) is not None else None,
        # Distributed Tracing, and Sequence, as the specification's extensions have them
        "traceparent": f"00-{each.trace}-{event.span}-01",
        "sequence": f"{event.seq:016d}",
        "deedbooksession": each.session,
        "deedbookseq": event.seq,
        "deedbooklayer": declared.layer(event.type),
        "deedbookactor": event.actor,
        "deedbookprincipal": event.principal,
        "deedbookparent": event.parent,
        "deedbookhash": each.hash,
        "deedbookprevious": each.previous,
        "deedbookpayload": each.payload_hash,
    }
    return {name: value for name, value in attributes.items() if value is not None and value != ""}


def _find_subject(each: LedgerEvent) -> str | None:
    """Return the subject of the event: the ability, skill or role that its payload names."""
    payload = each.event.payload
    named = next((payload[name] for name in _SUBJECTS if isinstance(payload.get(name), str)), None)
    return plain(named) if named else None


def _encode_data(each: LedgerEvent) -> bytes:
    """Return the members with the payload: exactly the bytes that the line's hash covers."""
    schema = schema_of(each.event.type, each.event.payload)
    of = f'"dataschema":"urn:deedbook:schema:{schema}",' if schema else ""
    return f',"datacontenttype":"application/json",{of}"data":'.encode() + each.payload
