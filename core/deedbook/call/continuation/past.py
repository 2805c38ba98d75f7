"""The calls of a session up to an event, in their order, each with its outcome: what may be served again.

A call is taken when the same one is made: kind, name and final arguments. It may be taken before another that began
earlier only if the two overlapped. With a call that is served, all that its handler called is past, too; a flow is
never served, since it acts through calls alone.
"""

from collections.abc import Iterator, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Final

import attrs

from deedbook.contract import Event
from deedbook.format.canonical import digest, encode_payload
from deedbook.format.families import OUTCOMES
from deedbook.format.folds import NAMED_BY

from .parent import Gone, Parent

_GIVEN: Final[Mapping[str, str]] = MappingProxyType({"llm": "request"})
_KINDS: Final[Mapping[str, str]] = MappingProxyType({"llm": "model"})
_ENDS: Final = frozenset(outcome for outcomes in OUTCOMES.values() for outcome in outcomes)


@attrs.define(eq=False)
class Made:
    """A call that was made: its *intent*, its *ended* outcome if there is one, and the call *within* which it was made.

    *args* are the final arguments, opened; *gone* says that they are not there any more.
    """

    intent: Event
    kind: str
    name: str
    args: Any = None
    key: str = ""
    gone: str = ""
    ended: Event | None = None
    within: "Made | None" = None

    @property
    def stored(self) -> Any:
        """The final arguments as the ledger has them."""
        return self.intent.payload.get(given_as(self.intent.type))

    @property
    def until(self) -> float:
        """The number of the event until which it was open."""
        return inf if self.ended is None else self.ended.seq

    def is_within(self, other: "Made") -> bool:
        """Say whether *other* is around it, however far."""
        above = self.within
        while above is not None and above is not other:
            above = above.within
        return above is other


class Past:
    """The calls of *parent* whose intent is among its events 0 to *at*, as far as they were not taken yet."""

    def __init__(self, parent: Parent, at: int) -> None:
        self.parent, self.at = parent, at
        self.left = list(_made(parent, at))
        self.denied = [event for event in parent.events[: at + 1] if event.type == "tool.denied"]

    def take(self, kind: str, name: str, raw: bytes) -> "Made | None":
        """Take the recorded call that is the same, by its final arguments (*raw*); ``None`` if none is due."""
        wanted = key_of(kind, name, raw)
        found = next((made for made in self.due() if made.key == wanted), None)
        if found is not None:
            self.left.remove(found)
        return found

    def due(self) -> Iterator[Made]:
        """Yield the calls that may come next: the first that is left, and those that began before it had ended.

        What was called inside a call comes after that.
        """
        until = inf
        for made in self.left:
            if made.intent.seq > until:
                return
            if made.within is None or made.within not in self.left:
                yield made
            until = min(until, made.until)

    def pass_over(self, made: Made) -> None:
        """Count all that was called inside *made* as past."""
        self.left = [each for each in self.left if not each.is_within(made)]


def key_of(kind: str, name: str, raw: bytes) -> str:
    """Return the name under which the same calls are known: the digest of kind, name and final arguments."""
    return digest(b"%b\n%b\n%b" % (kind.encode(), name.encode(), raw))


def given_as(event_type: str) -> str:
    """Return which member of an intent holds its arguments."""
    return _GIVEN.get(event_type.partition(".")[0], "args")


def _made(parent: Parent, at: int) -> Iterator[Made]:
    """Yield every call in the order of the intents; outcomes count wherever they stand."""
    around: dict[str, Made | None] = {}
    found: list[Made] = []
    for event in parent.events:
        above = around.get(event.parent or "")
        around[event.span] = above
        if event.type in OUTCOMES and event.seq <= at:
            family = event.type.partition(".")[0]
            name = event.payload.get(NAMED_BY.get(family, "tool_name"))
            made = Made(event, _KINDS.get(family, family), name if isinstance(name, str) else "", within=above)
            _open(parent, made)
            around[event.span] = made
            found.append(made)
        elif event.type in _ENDS and above is not None and above.intent.span == event.parent:
            above.ended = event
            around[event.span] = above.within  # what an answer asks for is not called inside the question
    yield from found


def _open(parent: Parent, made: Made) -> None:
    try:
        made.args = parent.opened(made.stored)
        made.key = key_of(made.kind, made.name, encode_payload(made.args))
    except Gone as problem:
        made.gone = str(problem)
    if made.args is None:
        made.gone = made.gone or "its payload was taken out"
