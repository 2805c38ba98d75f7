"""A drawing of calls over time: a bar for each, from its intent to its outcome. No style, no script."""

from collections.abc import Iterator, Sequence
from typing import Final

from .account import Use, measure_milliseconds
from .markup import escape_text

MAX_BARS: Final = 300
"""The largest number of bars; later calls are only in the lists."""
WIDTH: Final = 1000
HEIGHT: Final = 18
LABEL: Final = 300
_KINDS: Final = frozenset({"tool", "model", "flow", "memory"})


def draw_bars(uses: Sequence[Use], start: str, end: str) -> Iterator[str]:
    """Yield the drawing of *uses* between two times of the ledger; nothing without uses."""
    shown = [use for use in uses if use.intent is not None][:MAX_BARS]
    if not shown:
        return
    whole = max(1, measure_milliseconds(start, end))
    high = HEIGHT * len(shown) + HEIGHT
    yield f'<svg class="bars" role="img" viewBox="0 0 {WIDTH} {high}" aria-label="Calls over {whole} milliseconds">'
    for line, use in enumerate(shown):
        yield _draw_bar(use, line, start, whole)
    yield f'<text x="{LABEL}" y="{high - 5}">0</text>'
    yield f'<text x="{WIDTH}" y="{high - 5}" text-anchor="end">{whole} ms</text>'
    yield "</svg>"


def _draw_bar(use: Use, line: int, start: str, whole: int) -> str:
    assert use.intent is not None
    room, high = WIDTH - LABEL, HEIGHT * line
    left = LABEL + room * min(measure_milliseconds(start, use.intent.ts), whole) / whole
    wide = max(2.0, room * (use.milliseconds or 0) / whole)
    left = min(left, WIDTH - 2.0)
    look = use.kind if use.kind in _KINDS else "tool"
    look = f"{look} bad" if use.outcome != "result" else look
    took = "no outcome" if use.milliseconds is None else f"{use.milliseconds} ms"
    title = f"event {use.intent.seq}: {use.name}: {use.outcome}, {took}"
    name = use.name if len(use.name) <= 34 else f"{use.name[:33]}…"
    return (
        f'<a href="#e{use.intent.seq}"><title>{escape_text(title)}</title>'
        f'<text x="{6 + 10 * min(use.depth, 8)}" y="{high + 13}">{escape_text(name)}</text>'
        f'<rect class="{look}" x="{left:.1f}" y="{high + 4}" width="{min(wide, WIDTH - left):.1f}" height="10"/></a>'
    )
