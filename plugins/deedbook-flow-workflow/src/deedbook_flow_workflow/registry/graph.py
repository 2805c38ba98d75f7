"""The phases of a cycle as a graph: which follows which, whether they form a circle, and which are never reached."""

from collections.abc import Iterator, Mapping, Sequence

from deedbook.format.errors import DomainError, fault
from deedbook.format.schema import suggest

from .files import WorkflowFile


def find_next(cycle: WorkflowFile, phases: Mapping[str, WorkflowFile]) -> dict[str, str | None]:
    """Return the phase that follows each phase of *cycle*; a phase without ``next`` goes on in the cycle's order."""
    order: Sequence[str] = cycle.front["phases"]
    following = dict(zip(order, (*order[1:], None), strict=True))
    return {name: phases[name].front.get("next", following[name]) for name in order if name in phases}


def check_graph(
    cycle: WorkflowFile, phases: Mapping[str, WorkflowFile], following: Mapping[str, str | None]
) -> Iterator[DomainError]:
    """Yield the faults of a cycle's links: unknown ones, circles, and phases that are never reached."""
    order: Sequence[str] = cycle.front["phases"]
    entry: str = cycle.front["entry_phase"]
    if entry not in order:
        why = f"entry_phase: {entry} is not one of the cycle's phases{suggest(entry, order)}"
        yield fault("SOURCE_INVALID", why, place=cycle.place("entry_phase"))
        return
    outside = [name for name, found in following.items() if found is not None and found not in order]
    for name in outside:
        found = following[name]
        why = f"next: {found} is not one of the phases of the cycle {cycle.id}{suggest(str(found), order)}"
        yield fault("SOURCE_INVALID", f"{why} ({cycle.line})", place=phases[name].place("next"))
    if outside or any(name not in phases for name in order):
        return
    seen = _walk(entry, following)
    last = following[seen[-1]]
    if last is not None:
        circle = " → ".join((*seen[seen.index(last) :], last))
        why = f"the phases form a circle: {circle}; a phase repeats itself until its advance_signal is true"
        yield fault("SOURCE_INVALID", f"{why} ({cycle.line})", place=phases[seen[-1]].place("next"))
    for index, name in enumerate(order):
        if name not in seen:
            why = f"phases: {name} is never reached from {entry}; name it in next of another phase, or take it out"
            yield fault("SOURCE_INVALID", why, place=cycle.place("phases", index))


def _walk(entry: str, following: Mapping[str, str | None]) -> list[str]:
    """Return the phases from *entry* on, each once."""
    seen = [entry]
    while (name := following[seen[-1]]) is not None and name not in seen:
        seen.append(name)
    return seen
