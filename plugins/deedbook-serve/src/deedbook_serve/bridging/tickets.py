"""The open calls of one agent's session, by the names that the agent may use for them later."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Final

import attrs

from deedbook.call.handlers import Ticket
from deedbook.contract import Object
from deedbook.format.errors import DeedbookError, fault

from .dialects import Answer

JUDGING: Final = 600.0
"""Seconds that a call waits for another judgement of the same one, for which a person may be asked."""


@attrs.frozen(eq=False)
class Held:
    """An open call: its *ticket*, and the *answer* that it got.

    *given* is the agent's input, *judged* how that was judged, and *run* the input that the agent may run.
    """

    ticket: Ticket
    given: Object
    judged: Object
    run: Object
    answer: Answer


class Tickets:
    """Open calls; of several under one name, the first is taken first. Several threads may ask."""

    def __init__(self) -> None:
        self._held: dict[str, list[Held]] = {}
        self._judged: set[str] = set()
        self._turn = Condition()

    @contextmanager
    def judging(self, name: str) -> Iterator[Held | None]:
        """Let nobody else judge the call *name* meanwhile; give what is open under it already.

        Raises `DeedbookError` (``SESSION_BUSY``) where somebody else still judges it after `JUDGING` seconds.
        """
        with self._turn:
            if not self._turn.wait_for(lambda: name not in self._judged, JUDGING):
                why = f"the same call has been judged for {JUDGING:g} s; ask again"
                raise DeedbookError(fault("SESSION_BUSY", why, retryable=True))
            self._judged.add(name)
        try:
            yield self.find(name)
        finally:
            with self._turn:
                self._judged.discard(name)
                self._turn.notify_all()

    def put(self, held: Held, names: tuple[str, ...]) -> None:
        """Keep an open call under *names*."""
        with self._turn:
            for name in dict.fromkeys(names):
                self._held.setdefault(name, []).append(held)

    def find(self, name: str) -> Held | None:
        """Return the first open call of that name, if there is one."""
        with self._turn:
            return next(iter(self._held.get(name, ())), None)

    def take(self, name: str) -> Held | None:
        """Take the first open call of that name out, under all of its names."""
        with self._turn:
            found = next(iter(self._held.get(name, ())), None)
            if found is not None:
                self._remove(found)
            return found

    def drop(self, held: Held) -> bool:
        """Take *held* out; say whether it was still there."""
        with self._turn:
            found = any(each is held for kept in self._held.values() for each in kept)
            self._remove(held)
            return found

    def _remove(self, held: Held) -> None:
        left = {name: [each for each in kept if each is not held] for name, kept in self._held.items()}
        self._held = {name: kept for name, kept in left.items() if kept}

    def __len__(self) -> int:
        with self._turn:
            return len({id(held) for kept in self._held.values() for held in kept})
