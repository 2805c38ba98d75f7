"""The tree and the transcript of a ledger: its events by cause, and as lines for people. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.errors import LedgerError, fault
from deedbook.format.event_text import show
from deedbook.format.events import EXCISED_KEY
from deedbook.format.families import NOTHING_DECLARED, DeclaredTypes
from deedbook.format.folds import AMENDED
from deedbook.format.terminal import plain
from deedbook_audit.amendments import Amendments, AmendmentsFold
from deedbook_inspect.event_summary import summary

_AMENDMENTS: Final = AmendmentsFold()
_GATES: Final = frozenset({"hook.fired", "policy.check"})
_SILENT: Final = frozenset({"context.noted"})
_SPOKEN: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"user.message": ("user", "text"), "agent.reply": ("agent", "reply")}
)
"""Messages by their type: who speaks, and the member with the text."""


@attrs.define
class EventTree:
    """The causal tree of a ledger. *children* are listed by the span of their parent, all in the order of the ledger.

    An orphan names a parent that no earlier event has, or a span that is taken; it is shown like a root.
    """

    nodes: dict[str, Event] = attrs.field(factory=dict)
    roots: list[Event] = attrs.field(factory=list)
    orphans: list[Event] = attrs.field(factory=list)
    children: dict[str, list[Event]] = attrs.field(factory=dict)
    amendments: Amendments = attrs.field(factory=Amendments)
    declared: DeclaredTypes = NOTHING_DECLARED

    def lines(self, *, depth: int | None = None, payloads: bool = True, ids: bool = False) -> Iterator[str]:
        """Yield the tree, one event a line, and the count of roots and orphans.

        Below *depth* levels under a root only the number of events is shown; without *payloads* only types are. With
        *ids*, each type is followed by the event's seq, span, actor and time.
        """
        yield f"spans: {len(self.nodes)}, roots: {len(self.roots)}, orphans: {len(self.orphans)}"
        for top in [*self.roots, *self.orphans]:
            yield from self._below(top, depth, payloads=payloads, ids=ids)

    def as_json(self) -> dict[str, Any]:
        """Return the tree as JSON: every event with its layer and parent, and the roots and orphans."""
        nodes = [
            {
                "seq": event.seq,
                "type": event.type,
                "layer": self.declared.layer(event.type),
                "actor": event.actor,
                "span": event.span,
                "parent": event.parent,
                **self._find_amendments(event),
            }
            for event in self.nodes.values()
        ]
        return {
            "schema_version": "v1",
            "events": nodes,
            "roots": [event.span for event in self.roots],
            "orphans": [event.span for event in self.orphans],
        }

    def _find_amendments(self, event: Event) -> dict[str, list[int]]:
        """Return which events amend *event*, if there are any."""
        by = [each.seq for each in self.amendments.of(event.seq)]
        return {"amended_by": by} if by else {}

    def _below(self, top: Event, depth: int | None, *, payloads: bool, ids: bool) -> Iterator[str]:
        stack = [(top, "", "", 0)]
        while stack:
            event, branch, indent, level = stack.pop()
            by = ", ".join(f"event {each.seq}" for each in self.amendments.of(event.seq))
            mark = f"  (amended by {by})" if by else ""
            header = f"  [{event.seq} {event.span} {event.actor} {event.ts}]" if ids else ""
            text = summary(event, self.declared) if payloads else ""
            yield plain(f"{branch}{event.type}{header}  {text}{mark}").rstrip()
            below = self._caused_by(event)
            if below and level == depth:
                yield f"{indent}└─ … {self._count_below(event)} more"
                continue
            stack.extend(
                (child, f"{indent}{'├─ ' if more else '└─ '}", f"{indent}{'│  ' if more else '   '}", level + 1)
                for more, child in enumerate(reversed(below))
            )

    def _caused_by(self, event: Event) -> list[Event]:
        return self.children.get(event.span, []) if self.nodes.get(event.span) is event else []

    def _count_below(self, top: Event) -> int:
        count, stack = 0, [top]
        while stack:
            below = self._caused_by(stack.pop())
            count += len(below)
            stack += below
        return count


class TreeFold:
    """The fold whose state is an `EventTree`; *declared* has the event types of plugins."""

    def __init__(self, declared: DeclaredTypes = NOTHING_DECLARED) -> None:
        self._declared = declared

    def start(self) -> EventTree:
        """Return an empty tree."""
        return EventTree(declared=self._declared)

    def step(self, state: EventTree, event: Event) -> EventTree:
        """Add *event* below its parent."""
        if event.span in state.nodes or (event.parent is not None and event.parent not in state.nodes):
            state.orphans.append(event)
        elif event.parent is None:
            state.roots.append(event)
        else:
            state.children.setdefault(event.parent, []).append(event)
        state.nodes.setdefault(event.span, event)
        if event.type == AMENDED:
            _AMENDMENTS.step(state.amendments, event)
        return state


def subtree(events: Iterable[Event], name: str) -> Iterator[Event]:
    """Yield the event whose seq or span is *name*, as a root, and all its descendants.

    Raises `LedgerError` at the end: ``EVENT_NOT_FOUND`` if there is no such event.
    """
    spans: set[str] = set()
    for event in events:
        if not spans and name in (str(event.seq), event.span):
            spans.add(event.span)
            yield attrs.evolve(event, parent=None)
        elif event.parent in spans:
            spans.add(event.span)
            yield event
    if not spans:
        raise LedgerError(fault("EVENT_NOT_FOUND", f"no event has the seq or the span {name!r}"))


def transcript(events: Iterable[Event], declared: DeclaredTypes = NOTHING_DECLARED) -> Iterator[str]:
    """Yield the transcript of a session: one plain line for each relevant event."""
    for event in events:
        if line := tell(event, declared):
            yield line


def tell(event: Event, declared: DeclaredTypes = NOTHING_DECLARED) -> str | None:
    """Return *event* as a line of a transcript: time, actor, text; ``None`` for an event that changed nothing.

    Messages of people and agents are complete, data is truncated.
    """
    if event.type in _SILENT or (event.type in _GATES and event.payload.get("decision") == "allow"):
        return None
    who, member = _SPOKEN.get(event.type, (event.type, ""))
    if member and EXCISED_KEY not in event.payload:
        return plain(f"{event.ts[11:23]} {who}: {show(event.payload.get(member, ''))}")
    return plain(f"{event.ts[11:23]} {who}: {summary(event, declared)}")
