"""From ledgers to a collector: reads events, sends batches, and moves the cursor after each accepted batch."""

import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import click

from .cursors import Cursor
from .delivery import Collector
from .spans import LedgerEvent, Span, SpanFold

if TYPE_CHECKING:
    from deedbook_inspect.observing.ledger_reader import LedgerReader
    from deedbook_inspect.reading import LedgerFile, Ledgers

__all__ = ["LedgerExport", "LedgerFollower"]

BATCH: Final = 512
_PAUSE: Final = 0.25
_RELIST: Final = 2.0


class LedgerExport:
    """The export of one ledger to a collector. A call sends the new spans, and returns their number."""

    def __init__(
        self, ledgers: "Ledgers", place: Path, collector: Collector, cursor: Cursor, *, contents: bool
    ) -> None:
        self._reader: LedgerReader = ledgers.open(place)
        self._place, self._collector, self._cursor = place, collector, cursor
        self._spans = SpanFold(ledgers, contents=contents)
        self._last: LedgerEvent | None = None
        self.ended = False

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the ledger."""
        self.close()

    def close(self) -> None:
        """Close the ledger."""
        self._reader.close()

    @property
    def unfinished(self) -> int:
        """The number of spans that have begun and not ended; they are sent when they end."""
        return self._spans.unfinished

    def __call__(self) -> int:
        """Send the new spans; raises `UndeliveredError`, `DeedbookError` and `click.ClickException`."""
        batch: list[Span] = []
        sent = 0
        for ledger_event in self._reader():
            spans = list(self._spans(ledger_event))
            self._last = ledger_event
            self.ended = self.ended or ledger_event.event.type == "session.end"
            if not self._is_sent(ledger_event):
                batch += spans
            if len(batch) >= BATCH:
                sent += self._send(batch)
                batch = []
        self._refuse_shorter()
        return sent + self._send(batch)

    def _refuse_shorter(self) -> None:
        """Refuse a ledger that is shorter than what was sent."""
        position = self._cursor.get(self._last.session) if self._last else None
        if self._last and position and self._last.event.seq < position.seq:
            why = f"it ends at event {self._last.event.seq}, and {position.seq} was sent; verify it"
            raise click.ClickException(f"{self._place}: {why}. --from-start sends it anew")

    def _send(self, batch: list[Span]) -> int:
        """Send a batch, and then move the cursor to the last read event."""
        self._collector.send(batch)
        last = self._last
        if last is not None and not self._is_sent(last):
            self._cursor.move(last.session, last.event.seq, last.hash)
            self._cursor.save()
        return len(batch)

    def _is_sent(self, ledger_event: LedgerEvent) -> bool:
        """Return whether the collector has the spans up to an event; refuse a changed ledger."""
        position = self._cursor.get(ledger_event.session)
        if position is None or ledger_event.event.seq > position.seq:
            return False
        if ledger_event.event.seq == position.seq and ledger_event.hash != position.hash:
            why = f"event {position.seq} is not the one that was sent; verify the ledger. --from-start sends it anew"
            raise click.ClickException(f"{self._place}: {why}")
        return True


class LedgerFollower:
    """Ledgers that are followed: those in *names*, or all of the workspace, also new ones."""

    def __init__(
        self, ledgers: "Ledgers", names: tuple[str, ...], collector: Collector, cursor: Cursor, *, contents: bool
    ) -> None:
        self._ledgers, self._names = ledgers, names
        self._collector, self._cursor, self._contents = collector, cursor, contents
        self._exports: dict[Path, LedgerExport] = {}
        self._finished: dict[Path, int] = {}
        self._listed = -_RELIST
        self._found: list[LedgerFile] = []

    def __call__(self) -> int:
        """Send spans as events are written; return their number once each named ledger has ended."""
        sent = 0
        try:
            while True:
                sent += self.send_new()
                if self._names and self._finished.keys() >= {each.place for each in self._found}:
                    return sent
                time.sleep(_PAUSE)
        finally:
            for export in self._exports.values():
                export.close()

    def send_new(self) -> int:
        """Send the new spans; return their number."""
        now = time.monotonic()
        if now - self._listed >= _RELIST:
            self._listed = now
            self._found = [self._ledgers.find(name) for name in self._names] or list(self._ledgers.list_all())
        return sum(self._follow_one(each) for each in self._found)

    def _follow_one(self, found: "LedgerFile") -> int:
        """Continue with one ledger; a finished one is closed, and opened again if it grows."""
        size = found.size
        if self._finished.get(found.place) == size:
            return 0
        export = self._exports.get(found.place)
        if export is None:
            export = LedgerExport(self._ledgers, found.place, self._collector, self._cursor, contents=self._contents)
            self._exports[found.place] = export
        sent = export()
        if export.ended or not found.is_live:
            self._exports.pop(found.place).close()
            self._finished[found.place] = size
        return sent
