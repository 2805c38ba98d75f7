"""The rules for forks within one file: it names its parent once, and what it serves is the parent's.

`forks` compares the lines with the parent's ledger, if that is available.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

ABOUT: Final = frozenset({"session.forked", "call.served", "approval.served"})


class ForkRules:
    """The fork records of one session: call `check` for every event of `ABOUT` in order, then `notes`."""

    def __init__(self) -> None:
        self._parent: Any = None
        self._forked = False
        self._served = 0

    def check(
        self, kind: str, parent: bytes | None, root: bytes | None, outcome: bytes | None, payload: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield the violations of the next event; *outcome* is the span of the last outcome before it."""
        if kind == "session.forked":
            if self._forked or parent != root:
                yield "a second session.forked" if self._forked else "session.forked under something else"
            self._forked, self._parent = True, payload.get("session")
        else:
            self._served += kind == "call.served"
            if not self._forked:
                yield f"{kind} in a session that goes on from nowhere"
            elif isinstance(self._parent, str) and payload.get("session") not in (self._parent, None):
                yield f"{kind} of session {payload['session']}, which is not the parent"
            if kind == "call.served" and parent != outcome:
                yield "call.served that is not under the outcome before it"

    def notes(self) -> Iterator[str]:
        """Yield deviations that break no rule."""
        if self._forked:
            outcomes = "1 outcome was" if self._served == 1 else f"{self._served} outcomes were"
            note = "held against it where that ledger is at hand"
            yield f"forked from session {self._parent}: {outcomes} served from its record, {note}"
