"""A drawing of calls over time: a bar for each, from its intent to its outcome."""

from collections.abc import Sequence
from typing import Final

import attrs

from .account import Use, measure_milliseconds

MAX_BARS: Final = 300
"""The largest number of bars; later calls are only in the lists."""
WIDTH: Final = 1000
HEIGHT: Final = 18
LABEL: Final = 300
_KINDS: Final = frozenset({"tool", "model", "flow", "memory"})


@attrs.frozen
class Bar:
    """One call: where its bar stands, its *name* beside it, and its *title*. *style* is its kind and how it ended."""

    seq: int
    name: str
    title: str
    style: str
    indent: int
    top: int
    left: float
    width: float


@attrs.frozen
class Chart:
    """A drawing of *bars* that covers *milliseconds*. *left_out*: how many calls have no bar."""

    bars: tuple[Bar, ...]
    milliseconds: int
    left_out: int
    width: int = WIDTH
    label_width: int = LABEL

    @property
    def height(self) -> int:
        """A row for each bar, and one for the scale."""
        return HEIGHT * len(self.bars) + HEIGHT


def build_chart(uses: Sequence[Use], start: str, end: str) -> Chart | None:
    """Return the chart of *uses* between two times of the ledger; ``None`` if nothing was called."""
    called = [use for use in uses if use.intent is not None]
    if not called:
        return None
    whole = max(1, measure_milliseconds(start, end))
    bars = (_build_bar(use, row, start, whole) for row, use in enumerate(called[:MAX_BARS]))
    return Chart(tuple(bars), whole, max(0, len(called) - MAX_BARS))


def _build_bar(use: Use, row: int, start: str, whole: int) -> Bar:
    assert use.intent is not None
    room = WIDTH - LABEL
    left = LABEL + room * min(measure_milliseconds(start, use.intent.ts), whole) / whole
    left = min(left, WIDTH - 2.0)
    width = max(2.0, room * (use.milliseconds or 0) / whole)
    kind = use.kind if use.kind in _KINDS else "tool"
    took = "no outcome" if use.milliseconds is None else f"{use.milliseconds} ms"
    return Bar(
        seq=use.intent.seq,
        name=use.name if len(use.name) <= 34 else f"{use.name[:33]}…",
        title=f"event {use.intent.seq}: {use.name}: {use.outcome}, {took}",
        style=kind if use.outcome == "result" else f"{kind} bad",
        indent=6 + 10 * min(use.depth, 8),
        top=HEIGHT * row,
        left=left,
        width=min(width, WIDTH - left),
    )
