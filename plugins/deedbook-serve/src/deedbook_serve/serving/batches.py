"""The order of a batch of actions: what waits for what, known before anything is begun; pure."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import attrs

from deedbook.format.errors import DomainError, Err, Ok, Result, fault

_SHOWN = 5


@attrs.frozen
class Step:
    """One action as it was asked for (*said*), and the ids of those that have to be ok before."""

    id: str
    name: str
    said: Mapping[str, Any]
    waits: tuple[str, ...]


def ordered(actions: Sequence[Mapping[str, Any]]) -> Result[list[Step]]:
    """Return the actions of a request in the order in which they are done.

    Each comes after those that it waits for (``after``, ``{"from": id}``), and else as early as it was said. An `Err`
    (``BATCH_INVALID``) where an id stands twice, an unknown one is waited for, or they wait in a circle.
    """
    steps = [Step(said["id"], said["action"], said, _waits(said)) for said in actions]
    places = {step.id: place for place, step in enumerate(steps)}
    wrong = _wrong(steps, places)
    if wrong is not None:
        return Err(wrong)
    left = {step.id: len(step.waits) for step in steps}
    ready = [places[name] for name, count in left.items() if not count]
    heapify(ready)
    made: list[Step] = []
    while ready:
        step = steps[heappop(ready)]
        made.append(step)
        for later in steps:
            if step.id in later.waits:
                left[later.id] -= 1
                if not left[later.id]:
                    heappush(ready, places[later.id])
    if len(made) < len(steps):
        circle = ", ".join([name for name, count in left.items() if count][:_SHOWN])
        return Err(fault("BATCH_INVALID", f"these wait for each other, or for one that does: {circle}"))
    return Ok(made)


def _waits(said: Mapping[str, Any]) -> tuple[str, ...]:
    task = said.get("task")
    source = (task["from"],) if isinstance(task, Mapping) else ()
    return tuple(dict.fromkeys((*said.get("after", ()), *source)))


def _wrong(steps: Sequence[Step], places: Mapping[str, int]) -> DomainError | None:
    seen: set[str] = set()
    for index, step in enumerate(steps):
        at = f"$.params.actions[{index}]"
        if step.id in seen:
            return fault("BATCH_INVALID", f"the id {step.id!r} stands twice", place=f"{at}.id")
        seen.add(step.id)
        for name in step.waits:
            if name not in places:
                return fault("BATCH_INVALID", f"waits for {name!r}, which is no action of this request", place=at)
    return None
