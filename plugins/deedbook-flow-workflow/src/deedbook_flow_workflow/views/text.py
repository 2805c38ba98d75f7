"""A cycle as text; pure."""

from collections.abc import Iterable, Iterator

from .cycle import CycleView


def show_text(view: CycleView) -> Iterator[str]:
    """Yield the lines of a text that describes a cycle."""
    yield f"{view.cycle.id}: {view.cycle.title}"
    yield from _lines(view.rows(), "  ")
    for number, phase in enumerate(view.phases, 1):
        yield ""
        yield f"{number}. {phase.phase.id}" + (f": {phase.title}" if phase.title else "")
        yield from _lines(phase.rows(), "   ")


def _lines(rows: Iterable[tuple[str, str]], indent: str) -> Iterator[str]:
    found = list(rows)
    width = max(len(name) for name, _ in found) + 2
    for name, text in found:
        yield f"{indent}{name:<{width}}{text}"
