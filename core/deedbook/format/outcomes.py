"""The outcomes beneath each run and branch of a session: which ability answered, and the digest of the answer.

It is a fold of the ledger, so that a resumed session has the same outcomes. What belongs to a run is dropped when the
run ends: the run around it keeps the outcomes.
"""

from typing import Final

import attrs

from deedbook.contract import Event, RecordedOutcome

from .canonical import digest, encode
from .families import OUTCOMES
from .folds import NAMED_BY

_BEGINS: Final = frozenset({"flow.call", "run.branch"})
_ENDS: Final = OUTCOMES["flow.call"]
_ANSWERS: Final = {"tool.result": "tool", "llm.response": "model", "memory.result": "memory"}


@attrs.define(eq=False)
class _OutcomeScope:
    """A run or a branch: the one around it, its outcomes with their seq, and the spans that lead to it."""

    above: str | None
    found: list[tuple[int, RecordedOutcome]] = attrs.field(factory=list)
    spans: list[str] = attrs.field(factory=list)
    inside: set[str] = attrs.field(factory=set)


class RunOutcomes:
    """The outcomes beneath the open runs of a session, and beneath their branches."""

    def __init__(self) -> None:
        self._scopes: dict[str, _OutcomeScope] = {}
        self._scope_of: dict[str, str] = {}

    def find(self, span: str, before: int | None = None) -> list[RecordedOutcome]:
        """Return the outcomes beneath an open run or branch, each once, in order; with *before*, up to this seq."""
        scope = self._scopes.get(span)
        found = [] if scope is None else list(scope.found)
        return list(dict.fromkeys(each for seq, each in found if before is None or seq < before))

    def open(self, span: str, above: str | None = None) -> None:
        """Register a run or branch; a known one stays as it is."""
        if span not in self._scopes:
            self._scopes[span] = _OutcomeScope(above)
            self._scope_of[span] = span
            if above is not None:
                self._scopes[above].inside.add(span)

    def step(self, event: Event) -> None:
        """Add *event*."""
        owner = self._scope_of.get(event.parent or "")
        if event.type in _BEGINS:
            self.open(event.span, owner)
        elif owner is None:
            return
        elif event.type in _ENDS and event.parent == owner:
            self._close(owner)
        else:
            self._scope_of[event.span] = owner
            self._scopes[owner].spans.append(event.span)
            if event.type in _ANSWERS:
                self._add(owner, event)

    def _add(self, owner: str | None, event: Event) -> None:
        ability = event.payload.get(NAMED_BY[event.type.partition(".")[0]])
        outcome = RecordedOutcome(
            ability=ability if isinstance(ability, str) else "[sealed]",
            kind=_ANSWERS[event.type],
            digest=digest(encode(dict(event.payload))),
        )
        while owner is not None:
            self._scopes[owner].found.append((event.seq, outcome))
            owner = self._scopes[owner].above

    def _close(self, span: str) -> None:
        scope = self._scopes.pop(span)
        if scope.above in self._scopes:
            self._scopes[scope.above].inside.discard(span)
        for inner in scope.inside:
            self._close(inner)
        for each in (span, *scope.spans):
            self._scope_of.pop(each, None)
