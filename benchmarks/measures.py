"""One measured figure beside what was promised, and the table of them."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import attrs

Sense: TypeAlias = Literal["at most", "at least"]

TOLERANCE: Final = 1.25
"""How much worse than its target a figure may be before the run fails: figures differ by 10 to 20 % between runs."""


@attrs.frozen
class Measure:
    """A figure: *measured* should be at most or at least *target*, and *stretch* is what we aim at."""

    what: str
    sense: Sense
    target: float
    measured: float
    stretch: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.measured <= self.target if self.sense == "at most" else self.measured >= self.target

    @property
    def failed(self) -> bool:
        """Whether the figure is worse than its target by more than runs differ."""
        if self.sense == "at most":
            return self.measured > self.target * TOLERANCE
        return self.measured < self.target / TOLERANCE

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        return "ok" if self.met else "MISS" if self.failed else "near"


@attrs.frozen
class Note:
    """Something to be said in the table's place: what was skipped, or a figure without a promise."""

    text: str


Line: TypeAlias = Measure | Note

_HEADINGS: Final = ("what", "target", "stretch", "measured", "")


def table(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the rows of a Markdown table, a note as a row of its own."""
    rows = [_row(line) for line in lines]
    widths = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(len(_HEADINGS))]
    yield _joined(_HEADINGS, widths)
    yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    for row in rows:
        yield _joined(row, widths)


def _row(line: Line) -> tuple[str, ...]:
    if isinstance(line, Note):
        return line.text, "", "", "", ""
    sign = "≤" if line.sense == "at most" else "≥"
    stretch = "" if line.stretch is None else _figure(line.stretch, line.unit)
    return (
        line.what,
        f"{sign} {_figure(line.target, line.unit)}",
        stretch,
        _figure(line.measured, line.unit),
        line.verdict,
    )


def _figure(value: float, unit: str) -> str:
    number = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{number}{'' if unit == 'x' else ' '}{unit}"


def _joined(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
