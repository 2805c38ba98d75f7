"""A plan as a Mermaid flowchart; pure."""

from collections.abc import Iterator
from typing import Final

from deedbook import Object

from .plans import collect_risks, is_gate
from .step_graph import StepGraph

_ESCAPES: Final = str.maketrans(
    {**{char: f"#{ord(char)};" for char in '"#&<>`[](){}|\\'}, **dict.fromkeys("\r\n\t", " ")}
)


def draw_mermaid(plan: Object) -> str:
    """Return a sound *plan* as the text of a flowchart, with a box for each parallel group.

    Gates are hexagons, destructive and irreversible steps have a class of their own, and arrows from optional steps are
    dotted.
    """
    return "\n".join(_lines(plan, StepGraph.of(plan["steps"])))


def _lines(plan: Object, graph: StepGraph) -> Iterator[str]:
    yield "flowchart TD"
    yield "  classDef risky stroke-width:3px"
    for number, group in enumerate(graph.groups, 1):
        yield f'  subgraph g{number}["group {number}"]'
        for name in group:
            yield f"    {_draw_step(graph.index[name], graph)}"
        yield "  end"
    for number, before in enumerate(graph.before):
        for earlier in before:
            arrow = "-.->" if graph.steps[earlier].get("optional") else "-->"
            yield f"  s{earlier} {arrow} s{number}"
    for skill in plan.get("skills_excluded", ()):
        yield f"  %% excluded: {escape_label(skill['name'])}: {escape_label(skill['reason'])}"


def _draw_step(number: int, graph: StepGraph) -> str:
    step = graph.steps[number]
    target = next((f"{kind} {step[kind]}" for kind in ("ability", "skill") if kind in step), "")
    marks = [*step.get("tags", ()), *(["optional"] if step.get("optional") else [])]
    lines = [step["id"], *([target] if target else []), *([", ".join(marks)] if marks else [])]
    label = "<br/>".join(map(escape_label, lines))
    opening, closing = ("{{", "}}") if is_gate(step) else ("[", "]")
    risky = ":::risky" if collect_risks(step) else ""
    return f's{number}{opening}"{label}"{closing}{risky}'


def escape_label(text: str) -> str:
    """Return *text* for a label: characters with a meaning in Mermaid or HTML as entities, and on one line."""
    escaped = text.translate(_ESCAPES)
    return "".join(char if char.isprintable() else f"#{ord(char)};" for char in escaped)
