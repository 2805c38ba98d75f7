"""From ledgers to a collector: read, sent in batches, and the cursor goes on with what was taken."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import click

from .cursors import Cursor
from .delivery import Collector
from .shapes import Source
from .spans import Recorded, Span, Spans

__all__ = ["Following", "Ledgers", "Sending"]

BATCH: Final = 512
_PAUSE: Final = 0.25
_RELIST: Final = 2.0


class Found(Protocol):
    """A ledger: where it is, and whether somebody writes it."""

    @property
    def place(self) -> Path:
        """Its file."""

    @property
    def live(self) -> bool:
        """Whether somebody writes it."""

    @property
    def size(self) -> int:
        """How many bytes it has."""


class Recording(Protocol):
    """A ledger, open for reading."""

    def __call__(self) -> Iterator[Recorded]:
        """Yield what was added since."""

    def close(self) -> None:
        """Let go of it."""


class Ledgers(Source, Protocol):
    """What the kernel gives its commands for reading ledgers."""

    def named(self, name: str) -> Found:
        """Return the ledger that *name* is."""

    def every(self) -> Iterator[Found]:
        """Yield every ledger of the workspace."""

    def open(self, place: Path) -> Any:
        """Open a ledger for reading."""

    def unread(self, found: Found) -> str:
        """Say what cannot be read at the end of a ledger that nobody writes; empty: nothing."""

    @property
    def state(self) -> Path:
        """The state folder of the workspace."""


class Sending:
    """One ledger on its way to a collector. Called, it sends what was added, and says how many spans that were."""

    def __init__(self, ledgers: Ledgers, place: Path, collector: Collector, cursor: Cursor, *, contents: bool) -> None:
        self._recording: Recording = ledgers.open(place)
        self._place, self._collector, self._cursor = place, collector, cursor
        self._spans = Spans(ledgers, contents=contents)
        self._last: Recorded | None = None
        self.ended = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the ledger."""
        self.close()

    def close(self) -> None:
        """Let go of the ledger."""
        self._recording.close()

    @property
    def unfinished(self) -> int:
        """How many spans have begun and not ended; they are sent when they end."""
        return self._spans.unfinished

    def __call__(self) -> int:
        """Send what was added; raises `Undelivered`, `DeedbookError` and `click.ClickException`."""
        batch: list[Span] = []
        sent = 0
        for recorded in self._recording():
            made = list(self._spans(recorded))
            self._last = recorded
            self.ended = self.ended or recorded.event.type == "session.end"
            if not self._is_told(recorded):
                batch += made
            if len(batch) >= BATCH:
                sent += self._sent(batch)
                batch = []
        self._refuse_shorter()
        return sent + self._sent(batch)

    def _refuse_shorter(self) -> None:
        """Refuse a ledger that has less than was sent of it."""
        reached = self._cursor.reached(self._last.session) if self._last else None
        if self._last and reached and self._last.event.seq < reached.seq:
            why = f"it ends at event {self._last.event.seq}, and {reached.seq} was sent; verify it"
            raise click.ClickException(f"{self._place}: {why}. --from-start sends it anew")

    def _sent(self, batch: list[Span]) -> int:
        """Send a batch, and then move the cursor to the event that was read last."""
        self._collector.send(batch)
        last = self._last
        if last is not None and not self._is_told(last):
            self._cursor.move(last.session, last.event.seq, last.hash)
            self._cursor.keep()
        return len(batch)

    def _is_told(self, recorded: Recorded) -> bool:
        """Say whether the collector has what ended with an event; refuse a ledger that is not the one that it has."""
        reached = self._cursor.reached(recorded.session)
        if reached is None or recorded.event.seq > reached.seq:
            return False
        if recorded.event.seq == reached.seq and recorded.hash != reached.hash:
            why = f"event {reached.seq} is not the one that was sent; verify the ledger. --from-start sends it anew"
            raise click.ClickException(f"{self._place}: {why}")
        return True


class Following:
    """Ledgers, followed: those that *names* name, or all of the workspace, and new ones."""

    def __init__(
        self, ledgers: Ledgers, names: tuple[str, ...], collector: Collector, cursor: Cursor, *, contents: bool
    ) -> None:
        self._ledgers, self._names = ledgers, names
        self._collector, self._cursor, self._contents = collector, cursor, contents
        self._sending: dict[Path, Sending] = {}
        self._over: dict[Path, int] = {}
        self._listed = -_RELIST
        self._found: list[Found] = []

    def __call__(self) -> int:
        """Send as it is written; return how many spans, when each that was named has ended."""
        sent = 0
        try:
            while True:
                sent += self.once()
                if self._names and self._over.keys() >= {each.place for each in self._found}:
                    return sent
                time.sleep(_PAUSE)
        finally:
            for one in self._sending.values():
                one.close()

    def once(self) -> int:
        """Send what was written since; return how many spans that were."""
        now = time.monotonic()
        if now - self._listed >= _RELIST:
            self._listed = now
            self._found = [self._ledgers.named(name) for name in self._names] or list(self._ledgers.every())
        return sum(self._on(each) for each in self._found)

    def _on(self, found: Found) -> int:
        """Go on with one ledger; one that nobody writes any more is closed, and looked at again if it grows."""
        size = found.size
        if self._over.get(found.place) == size:
            return 0
        one = self._sending.get(found.place)
        if one is None:
            one = Sending(self._ledgers, found.place, self._collector, self._cursor, contents=self._contents)
            self._sending[found.place] = one
        sent = one()
        if one.ended or not found.live:
            self._sending.pop(found.place).close()
            self._over[found.place] = size
        return sent
