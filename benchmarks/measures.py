"""Rows of the results: figures with a target, figures without one, remarks; as a table and as JSON."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import attrs

from benchmarks.rounds import Figure

Sense: TypeAlias = Literal["at most", "at least"]

TOLERANCE: Final = 1.25
"""How much worse than its target a figure may be before the run fails: figures differ by 10 to 20 % between runs."""


def _figure(value: Figure | float) -> Figure:
    return value if isinstance(value, Figure) else Figure.of([value])


@attrs.frozen
class Measure:
    """A figure with a promise: *measured* should be at most or at least *target*; *stretch* is what we aim at."""

    what: str
    sense: Sense
    target: float
    measured: Figure = attrs.field(converter=_figure)
    stretch: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        value = self.measured.value
        return value <= self.target if self.sense == "at most" else value >= self.target

    @property
    def failed(self) -> bool:
        """Whether the figure is worse than its target by more than runs differ."""
        value = self.measured.value
        return value > self.target * TOLERANCE if self.sense == "at most" else value < self.target / TOLERANCE

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        return "ok" if self.met else "MISS" if self.failed else "near"


@attrs.frozen
class Value:
    """A figure without a promise."""

    what: str
    measured: Figure = attrs.field(converter=_figure)
    unit: str = "x"


@attrs.frozen
class Note:
    """A remark."""

    text: str


@attrs.frozen
class Skip:
    """What was not measured, why, and what to install."""

    text: str


Line: TypeAlias = Measure | Value | Note | Skip

_HEADINGS: Final = ("what", "target", "stretch", "measured", "quartiles", "")


def missing(what: str, *packages: str) -> Skip:
    """Say that *what* was not measured because *packages* are not installed."""
    lacking = f"{', '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed"
    return Skip(f"{what}: skipped, {lacking}; pip install -r benchmarks/requirements-peers.txt")


def table(lines: Iterable[Line], *, verdicts: bool = True) -> Iterator[str]:
    """Yield the rows of a Markdown table, and then the remarks, a line each."""
    lines = list(lines)
    rows = [_row(line, verdicts) for line in lines if isinstance(line, Measure | Value)]
    widths = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(len(_HEADINGS))]
    if rows:
        yield _joined(_HEADINGS, widths)
        yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    for row in rows:
        yield _joined(row, widths)
    yield from (line.text for line in lines if isinstance(line, Note | Skip))


def as_json(benchmark: str, line: Line) -> dict[str, Any]:
    """Return *line* as an object of the JSON results."""
    if isinstance(line, Note | Skip):
        return {"benchmark": benchmark, "kind": type(line).__name__.lower(), "text": line.text}
    row: dict[str, Any] = {"benchmark": benchmark, "kind": "figure", "what": line.what, "unit": line.unit}
    row |= {"measured": line.measured.value, "low": line.measured.low, "high": line.measured.high}
    if isinstance(line, Measure):
        row |= {"sense": line.sense, "target": line.target, "stretch": line.stretch, "verdict": line.verdict}
    return row


def _row(line: Measure | Value, verdicts: bool) -> tuple[str, ...]:
    found, unit = line.measured, line.unit
    same = found.low == found.high
    spread = "" if same else f"{_number(found.low)} to {_number(found.high)}"
    target = stretch = verdict = ""
    if isinstance(line, Measure):
        target = f"{'≤' if line.sense == 'at most' else '≥'} {_with_unit(line.target, unit)}"
        stretch = "" if line.stretch is None else _with_unit(line.stretch, unit)
        verdict = line.verdict if verdicts else ""
    return line.what, target, stretch, _with_unit(found.value, unit), spread, verdict


def _with_unit(value: float, unit: str) -> str:
    return f"{_number(value)}{'' if unit == 'x' else ' '}{unit}".rstrip()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _joined(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
