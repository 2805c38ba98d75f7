"""The order of a batch of actions, computed from their dependencies before any action begins; pure."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import attrs

from deedbook.format.errors import DomainError, Err, Ok, Result, fault

_SHOWN = 5


@attrs.frozen
class Step:
    """One action as requested, and the ids of the actions that have to be ok before it."""

    id: str
    name: str
    request: Mapping[str, Any]
    depends_on: tuple[str, ...]


def order_actions(actions: Sequence[Mapping[str, Any]]) -> Result[list[Step]]:
    """Return the actions of a request in the order of execution.

    An action follows those that it depends on (``after``, ``{"from": id}``), and else keeps its place in the request.
    An `Err` (``BATCH_INVALID``) if an id occurs twice, a dependency is unknown, or dependencies form a circle.
    """
    steps = [Step(action["id"], action["action"], action, _find_dependencies(action)) for action in actions]
    places = {step.id: place for place, step in enumerate(steps)}
    problem = _check(steps, places)
    if problem is not None:
        return Err(problem)
    remaining = {step.id: len(step.depends_on) for step in steps}
    ready = [places[name] for name, count in remaining.items() if not count]
    heapify(ready)
    ordered: list[Step] = []
    while ready:
        step = steps[heappop(ready)]
        ordered.append(step)
        for later in steps:
            if step.id in later.depends_on:
                remaining[later.id] -= 1
                if not remaining[later.id]:
                    heappush(ready, places[later.id])
    if len(ordered) < len(steps):
        circle = ", ".join([name for name, count in remaining.items() if count][:_SHOWN])
        return Err(fault("BATCH_INVALID", f"these wait for each other, or for one that does: {circle}"))
    return Ok(ordered)


def _find_dependencies(action: Mapping[str, Any]) -> tuple[str, ...]:
    task = action.get("task")
    source = (task["from"],) if isinstance(task, Mapping) else ()
    return tuple(dict.fromkeys((*action.get("after", ()), *source)))


def _check(steps: Sequence[Step], places: Mapping[str, int]) -> DomainError | None:
    seen: set[str] = set()
    for index, step in enumerate(steps):
        at = f"$.params.actions[{index}]"
        if step.id in seen:
            return fault("BATCH_INVALID", f"the id {step.id!r} stands twice", place=f"{at}.id")
        seen.add(step.id)
        for name in step.depends_on:
            if name not in places:
                return fault("BATCH_INVALID", f"waits for {name!r}, which is no action of this request", place=at)
    return None
