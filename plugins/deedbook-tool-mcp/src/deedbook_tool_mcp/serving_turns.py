"""One call under way: what its handler shows meanwhile and its ledger says of it, brought to the loop that serves.

Handlers and listeners run on other threads. Which call they are about is a context variable, set where the call begins.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from deedbook import Event, Json, Object

MOST: Final = 256
"""How many things a call may have to say that nobody has taken yet; what is shown beyond that is dropped."""


class Progress(NamedTuple):
    """How far a call is: a number that only grows, perhaps of a *total*, and what a person may read."""

    progress: float
    total: float | None
    message: str | None


class Parked(NamedTuple):
    """A person has to decide: the payload of ``approval.requested``."""

    request: Object


class Over(NamedTuple):
    """Nothing comes after this."""


class Turn:
    """One call under way. *request* is the last one for a person, *faults* what is wrong with the arguments.

    *first* is called, on the loop that serves, when there is something to tell for the first time.
    """

    def __init__(self, ability: str) -> None:
        self.ability = ability
        self.request: Object | None = None
        self.faults: list[Object] = []
        self.first: Callable[[], object] = list
        self._told = False
        self._loop = asyncio.get_running_loop()
        self._said: asyncio.Queue[Progress | Parked | Over] = asyncio.Queue()
        self._latest = -1.0

    @property
    def approval(self) -> str:
        """The id of the last request for a person; empty without one."""
        return str(self.request["approval"]) if self.request else ""

    def over(self) -> None:
        """Say that the call is over; called on the loop that serves."""
        self._said.put_nowait(Over())

    async def next(self) -> Progress | Parked | Over:
        """Return what comes next."""
        return await self._said.get()

    def shown(self, delta: Json) -> None:
        """Take in what a handler shows."""
        self._post(lambda: self._progress(delta))

    def noticed(self, event: Event) -> None:
        """Take in what is recorded."""
        if event.type == "approval.requested":
            self.request = event.payload
            self._post(lambda: Parked(event.payload))
        elif event.type == "schema.violation" and event.payload["name"] == self.ability:
            wrong = event.payload["subject"] != "result" and isinstance(event.payload["errors"], list)
            self.faults = [dict(each) for each in event.payload["errors"]] if wrong else []

    def step(self, message: str) -> Progress:
        """Return the next step, which only says something."""
        return self._progress(message)

    def _post(self, make: Any) -> None:
        def put() -> None:
            if self._said.qsize() < MOST:
                self._said.put_nowait(make())
            if not self._told:
                self._told = True
                self.first()

        with suppress(RuntimeError):  # the loop is closed: nobody reads on
            self._loop.call_soon_threadsafe(put)

    def _progress(self, delta: Json) -> Progress:
        said = delta if isinstance(delta, Mapping) else {"message": delta} if isinstance(delta, str) else {}
        number = _number(delta if not said else said.get("progress"))
        grows = number is not None and number > self._latest
        self._latest = number if number is not None and grows else max(self._latest, 0.0) + 1
        message = said.get("message")
        return Progress(self._latest, _number(said.get("total")), message if isinstance(message, str) else None)


CURRENT: Final[ContextVar[Turn | None]] = ContextVar("deedbook_mcp_turn", default=None)
"""The call that the present thread or task works for."""


def shown(delta: Json) -> None:
    """Take in what the handler of the present call shows."""
    turn = CURRENT.get()
    if turn is not None:
        turn.shown(delta)


def noticed(event: Event) -> None:
    """Take in what is recorded for the present call."""
    turn = CURRENT.get()
    if turn is not None:
        turn.noticed(event)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
