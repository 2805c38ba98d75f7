"""From the events of a ledger to spans: a fold without the SDK; the same ledger always gives the same spans.

A pair of beginning and end is one span, with the id of the beginning. Any other event is a note on the innermost open
span above it, or, without one, a span without duration. A span's parent is the nearest span above it in the ledger's
tree.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, Protocol

import attrs

from deedbook import Event

from .shapes import CLOSES, SOFT, LedgerSource, SpanShapes

__all__ = ["LedgerEvent", "Span", "SpanFold", "SpanNote"]

_MAX_HOMES: Final = 200_000
"""The number of events whose span is remembered; children of older events are put at the root."""


class LedgerEvent(Protocol):
    """An event of a ledger, with the ids and the hash of its line."""

    @property
    def event(self) -> Event:
        """The event."""

    @property
    def session(self) -> str:
        """The id of its session."""

    @property
    def trace(self) -> str:
        """The trace of its ledger, 32 hex digits."""

    @property
    def hash(self) -> str:
        """The hash of its line; empty if its form has none."""


@attrs.frozen
class SpanNote:
    """An event within a span."""

    name: str
    ts: str
    attributes: dict[str, Any]


@attrs.define
class Span:
    """One span: ids in hex, times as in the ledger. *error* is why it failed, if it did."""

    name: str
    trace: str
    id: str
    parent: str | None
    type: str
    cause: str | None
    start: str
    end: str = ""
    client: bool = False
    error: str = ""
    attributes: dict[str, Any] = attrs.field(factory=dict)
    notes: list[SpanNote] = attrs.field(factory=list)
    links: list[str] = attrs.field(factory=list)


class SpanFold:
    """The spans of one ledger. *source* gives information beside it; *contents*: include payloads."""

    def __init__(self, source: LedgerSource, *, contents: bool = False) -> None:
        self._shape = SpanShapes(source, contents=contents)
        self._open: dict[str, Span] = {}
        self._homes: OrderedDict[str, tuple[str | None, str | None]] = OrderedDict()

    @property
    def unfinished(self) -> int:
        """The number of spans that have begun and not ended."""
        return len(self._open)

    def __call__(self, ledger_event: LedgerEvent) -> Iterator[Span]:
        """Apply the next event, and yield the spans that ended with it."""
        event = ledger_event.event
        above = self._open.get(event.parent or "")
        if above and event.type in CLOSES.get(above.type, ()):
            self._record_home(event.span, above.id, above.parent)
            self._shape.end(above, ledger_event)
            yield from self._close(above, event.ts, last=event.type == "session.end")
            return
        if event.type == "agent.transition":
            yield from self._end_role(event)
        parent = self._find_span_above(event.parent)
        start = self._shape.begin(ledger_event)
        if start is None:
            self._record_home(event.span, parent, None)
            if self._add_note(ledger_event, parent):
                return
            start = self._shape.build_point(ledger_event)
        span = Span(start.name, ledger_event.trace, event.span, parent, event.type, event.parent, event.ts)
        span.client, span.error = start.client, start.error
        span.attributes = start.attributes
        if parent != event.parent and event.parent:
            span.attributes["deedbook.parent_span_id"] = event.parent
        self._record_home(event.span, event.span, parent)
        if event.type not in CLOSES:
            span.end = event.ts
            yield span
        else:
            self._open[span.id] = span

    def _record_home(self, event: str, home: str | None, above: str | None) -> None:
        """Record the span of an event, and the span above it."""
        self._homes[event] = home, above
        if len(self._homes) > _MAX_HOMES:
            self._homes.popitem(last=False)

    def _find_span_above(self, parent: str | None) -> str | None:
        """Return the span of the event with the span id *parent*."""
        if parent is None:
            return None
        known = self._homes.get(parent)
        return known[0] if known else next(iter(self._open), None)

    def _end_role(self, event: Event) -> Iterator[Span]:
        """End the turn of the previous role under the same cause."""
        for span in [each for each in self._open.values() if each.cause == event.parent and each.type == event.type]:
            yield from self._close(span, event.ts)

    def _close(self, span: Span, ts: str, *, last: bool = False) -> Iterator[Span]:
        """End *span*, the soft spans below it, and at the end of the session all open spans."""
        del self._open[span.id]
        for each in list(self._open.values()):
            if each.id in self._open and (last or (each.type in SOFT and each.cause == span.id)):
                if each.type not in SOFT:
                    self._shape.mark_unknown(each)
                yield from self._close(each, ts, last=last)
        span.end = ts
        yield span

    def _add_note(self, ledger_event: LedgerEvent, home: str | None) -> bool:
        """Add an event to the innermost open span above it; return whether there is one."""
        while home is not None and home not in self._open:
            known = self._homes.get(home)
            home = known[1] if known else None
        if home is None:
            return False
        attributes = self._shape.build_note(ledger_event)
        self._open[home].links += self._shape.list_links(ledger_event)
        self._open[home].notes.append(SpanNote(ledger_event.event.type, ledger_event.event.ts, attributes))
        return True
