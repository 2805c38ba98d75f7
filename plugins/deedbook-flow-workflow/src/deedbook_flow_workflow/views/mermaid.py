"""A cycle as a Mermaid flowchart; pure."""

from collections.abc import Iterator
from typing import Final

from .cycle import CycleView, PhaseView

_ESCAPES: Final = str.maketrans(
    {**{char: f"#{ord(char)};" for char in '"#&<>`[](){}|\\'}, **dict.fromkeys("\r\n\t", " ")}
)


def draw_mermaid(view: CycleView) -> Iterator[str]:
    """Yield the lines of a flowchart: phases with their personas, the conditions between them, and how it ends."""
    yield "flowchart TD"
    yield f'  start(["{_escape(view.cycle.id)}"]) --> p0'
    for number, phase in enumerate(view.phases):
        yield f'  p{number}["{_label(phase)}"]'
        following = f"p{number + 1}" if phase.phase.next is not None else "done"
        yield f'  p{number} -->|"{_escape(phase.phase.advance_signal)}"| {following}'
        if phase.phase.halt_signal is not None:
            yield f'  p{number} -->|"{_escape(phase.phase.halt_signal)}"| abort'
    if view.cycle.done is not None:
        yield f'  p{len(view.phases) - 1} -.->|"{_escape(view.cycle.done)}"| done'
    yield '  done(["done"])'
    if any(phase.phase.halt_signal is not None for phase in view.phases):
        yield '  abort(["abort"])'


def _label(phase: PhaseView) -> str:
    lines = [phase.phase.id, *phase.personas, *([f"writes {phase.phase.artifact}"] if phase.phase.artifact else [])]
    return "<br/>".join(map(_escape, lines))


def _escape(text: str) -> str:
    """Return *text* for a label: characters with a meaning in Mermaid or HTML as entities, and on one line."""
    escaped = text.translate(_ESCAPES)
    return "".join(char if char.isprintable() else f"#{ord(char)};" for char in escaped)
