"""Requests for approval that runs and forks made, read from their session's ledger.

A run or a fork that ends without such a request withdraws it: nobody may use the approval of a call whose run is over.
A run that ends because it needs a person leaves it open, since its caller repeats the call after the answer.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from deedbook.contract import Event
from deedbook.format.families import OUTCOMES

RUN_OVER: Final = "the run that asked has ended without it"
FORK_OVER: Final = "the fork that asked has ended"
_ENDS: Final = OUTCOMES["flow.call"]


class RunRequests:
    """The requests that one session made itself, with the runs around each; *events* are all of the session."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.is_fork = False
        self._requests: list[Event] = []
        self._runs: dict[str, str] = {}
        self._inside: dict[str, str] = {}
        self._ended: dict[str, Event] = {}
        self._withdrawn: set[str] = set()
        self._needing: set[str] = set()
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        above = event.parent or ""
        around = above if above in self._runs else self._inside.get(above, "")
        if around:
            self._inside[event.span] = around
        if event.type == "flow.call":
            self._runs[event.span] = around
        elif event.type in _ENDS:
            self._ended[above] = event
        elif event.type == "session.forked":
            self.is_fork = True
        elif event.type == "context.needs_human":
            self._needing.add(above)
        elif event.type == "context.resumed":
            self._needing.discard(above)
        elif event.type == "approval.withdrawn":
            self._withdrawn.add(above)
        elif event.type == "approval.requested" and event.payload.get("span") == event.span:
            self._requests.append(event)  # a request of another session has the span that it has there

    def find(self, span: str) -> Event | None:
        """Return the request whose event has *span*."""
        return next((event for event in self._requests if event.span == span), None)

    def within(self, run: str) -> list[Event]:
        """Return the requests inside *run* that the session has not withdrawn; all of them for an empty text."""
        return [each for each in self._open() if not run or run in self._around(each)]

    def unfinished(self) -> list[Event]:
        """Return the requests that are withdrawn if the session ends as it is now."""
        return [each for each in self._open() if self.is_fork or any(map(self._is_lost, self._around(each)))]

    def describe_end(self, request: Event) -> str:
        """Return why the approval of *request* cannot be used any more; empty if it can."""
        if request.span in self._withdrawn:
            return "its session has withdrawn it"
        return RUN_OVER if any(map(self._ended_without, self._around(request))) else ""

    def is_running(self, request: Event) -> bool:
        """Return whether a run around *request* has no outcome."""
        return any(run not in self._ended for run in self._around(request))

    def needs_person(self, run: str) -> bool:
        """Return whether the context of *run* says that it needs a person."""
        return run in self._needing

    def _open(self) -> Iterator[Event]:
        return (each for each in self._requests if each.span not in self._withdrawn)

    def _around(self, request: Event) -> Iterator[str]:
        run = self._inside.get(request.span, "")
        while run:
            yield run
            run = self._runs[run]

    def _is_lost(self, run: str) -> bool:
        return run not in self._ended or self._ended_without(run)

    def _ended_without(self, run: str) -> bool:
        ended = self._ended.get(run)
        return ended is not None and ended.payload.get("code") != "NEEDS_HUMAN" and not self.needs_person(run)
