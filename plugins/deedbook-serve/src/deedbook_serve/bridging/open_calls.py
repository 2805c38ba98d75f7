"""The open calls of one agent's session, under the names that the agent may use for them later."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Final

import attrs

from deedbook.call.handlers import Ticket
from deedbook.contract import Object
from deedbook.format.errors import DeedbookError, fault

from .dialects import Answer

JUDGING_TIMEOUT: Final = 600.0
"""Seconds that a call waits while the same call is judged, which may include asking a person."""


@attrs.frozen(eq=False)
class OpenCall:
    """An open call: its *ticket*, and the *answer* to it.

    *input* is the agent's input, *judged* the form of it that was judged, and *allowed* the input that the agent may
    use.
    """

    ticket: Ticket
    input: Object
    judged: Object
    allowed: Object
    answer: Answer


class OpenCalls:
    """The open calls; of several under one name, the oldest is taken first. Safe in threads."""

    def __init__(self) -> None:
        self._calls: dict[str, list[OpenCall]] = {}
        self._reserved: set[str] = set()
        self._condition = Condition()

    @contextmanager
    def reserve(self, name: str) -> Iterator[OpenCall | None]:
        """Reserve the call *name* for this thread; give the open call of that name, if there is one.

        Raises `DeedbookError` (``SESSION_BUSY``) if another thread still judges it after `JUDGING_TIMEOUT` seconds.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: name not in self._reserved, JUDGING_TIMEOUT):
                why = f"the same call has been judged for {JUDGING_TIMEOUT:g} s; ask again"
                raise DeedbookError(fault("SESSION_BUSY", why, retryable=True))
            self._reserved.add(name)
        try:
            yield self.find(name)
        finally:
            with self._condition:
                self._reserved.discard(name)
                self._condition.notify_all()

    def put(self, call: OpenCall, names: tuple[str, ...]) -> None:
        """Add an open call under *names*."""
        with self._condition:
            for name in dict.fromkeys(names):
                self._calls.setdefault(name, []).append(call)

    def find(self, name: str) -> OpenCall | None:
        """Return the first open call of that name, if there is one."""
        with self._condition:
            return next(iter(self._calls.get(name, ())), None)

    def take(self, name: str) -> OpenCall | None:
        """Remove and return the first open call of that name, under all of its names."""
        with self._condition:
            found = next(iter(self._calls.get(name, ())), None)
            if found is not None:
                self._remove(found)
            return found

    def drop(self, call: OpenCall) -> bool:
        """Remove *call*; return whether it was still there."""
        with self._condition:
            found = any(each is call for calls in self._calls.values() for each in calls)
            self._remove(call)
            return found

    def _remove(self, call: OpenCall) -> None:
        left = {name: [each for each in calls if each is not call] for name, calls in self._calls.items()}
        self._calls = {name: calls for name, calls in left.items() if calls}

    def __len__(self) -> int:
        with self._condition:
            return len({id(call) for calls in self._calls.values() for call in calls})
