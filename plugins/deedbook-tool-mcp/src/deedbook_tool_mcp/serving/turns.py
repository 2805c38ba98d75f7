"""One call in progress: carries its progress and its events to the loop that serves.

Handlers and listeners run on other threads. A context variable, set at the start of a call, identifies the call.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeAlias

from mcp.server import ServerRequestContext
from mcp_types import LoggingMessageNotification

from deedbook import Event, Json, Object

Context: TypeAlias = ServerRequestContext[Any, Any]
MAX_UPDATES: Final = 256
"""How many updates may wait for the reader; further ones are dropped."""

_ANSWERED: Final = frozenset({"approval.granted", "approval.refused", "approval.expired", "approval.withdrawn"})


class Progress(NamedTuple):
    """The progress of a call: a number that only grows, perhaps of a *total*, and a text for a person."""

    progress: float
    total: float | None
    message: str | None


class PendingApproval(NamedTuple):
    """A person has to decide: the payload of ``approval.requested``."""

    request: Object


class LogMessage(NamedTuple):
    """A log message of the server behind the gateway."""

    notification: LoggingMessageNotification


class CallEnd(NamedTuple):
    """The last update."""


Update: TypeAlias = Progress | PendingApproval | LogMessage | CallEnd


class RunningCall:
    """One call in progress. *request* is the latest approval request, *faults* the faults of the arguments.

    *waiting* has the approval requests without an answer, by span: of the call itself, or of calls that it makes.

    *on_first* is called once, on the loop that serves, at the first update.
    """

    def __init__(self, ability: str) -> None:
        self.ability = ability
        self.request: Object | None = None
        self.waiting: dict[str, Object] = {}
        self.faults: list[Object] = []
        self.on_first: Callable[[], object] = list
        self._has_updates = False
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Update] = asyncio.Queue()
        self._latest = -1.0

    @property
    def approval(self) -> str:
        """The id of the latest approval request; empty without one."""
        return str(self.request["approval"]) if self.request else ""

    @property
    def approvals(self) -> list[str]:
        """The ids of the approval requests without an answer, each once."""
        return list(dict.fromkeys(str(each["approval"]) for each in self.waiting.values()))

    @property
    def is_nested(self) -> bool:
        """Whether a person is asked about a call that this call makes, and not about this call."""
        return any(each["name"] != self.ability for each in self.waiting.values())

    def end(self) -> None:
        """Add the last update; called on the loop that serves."""
        self._updates.put_nowait(CallEnd())

    async def next(self) -> Update:
        """Wait for the next update."""
        return await self._updates.get()

    def show_progress(self, delta: Json) -> None:
        """Receive progress from the handler."""
        self._post(lambda: self._progress(delta))

    def add_log_message(self, notification: LoggingMessageNotification) -> None:
        """Receive a log message of the server behind the gateway."""
        self._post(lambda: LogMessage(notification))

    def record_event(self, event: Event) -> None:
        """Receive an event of the ledger."""
        if event.type == "approval.requested":
            self.request = self.waiting[event.span] = event.payload
            self._post(lambda: PendingApproval(event.payload))
        elif event.type in _ANSWERED:
            self.waiting.pop(event.parent or "", None)
        elif event.type == "schema.violation" and event.payload["name"] == self.ability:
            wrong = event.payload["subject"] != "result" and isinstance(event.payload["errors"], list)
            self.faults = [dict(each) for each in event.payload["errors"]] if wrong else []

    def build_progress(self, message: str) -> Progress:
        """Return a step of progress that only has a message."""
        return self._progress(message)

    def _post(self, make: Any) -> None:
        def put() -> None:
            if self._updates.qsize() < MAX_UPDATES:
                self._updates.put_nowait(make())
            if not self._has_updates:
                self._has_updates = True
                self.on_first()

        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(put)

    def _progress(self, delta: Json) -> Progress:
        members = delta if isinstance(delta, Mapping) else {"message": delta} if isinstance(delta, str) else {}
        number = _get_number(delta if not members else members.get("progress"))
        grows = number is not None and number > self._latest
        self._latest = number if number is not None and grows else max(self._latest, 0.0) + 1
        message = members.get("message")
        return Progress(self._latest, _get_number(members.get("total")), message if isinstance(message, str) else None)


CURRENT: Final[ContextVar[RunningCall | None]] = ContextVar("deedbook_mcp_turn", default=None)
"""The call of the current thread or task."""


def show_progress(delta: Json) -> None:
    """Pass progress to the current call."""
    call = CURRENT.get()
    if call is not None:
        call.show_progress(delta)


def record_event(event: Event) -> None:
    """Pass an event to the current call."""
    call = CURRENT.get()
    if call is not None:
        call.record_event(event)


def _get_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
