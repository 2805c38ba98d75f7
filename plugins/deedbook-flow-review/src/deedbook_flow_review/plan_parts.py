"""The parts of a plan between its gates; pure.

A person is asked about the tagged steps of a part before the work on that part begins. A step waits for a gate if it
is in a later group of the plan than the gate.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from deedbook import Object
from deedbook_flow_runcontext.plan_summary import TAGS, find_groups
from deedbook_flow_runcontext.plans import is_approval, iterate_dependencies, upcast


@attrs.frozen
class PlanPart:
    """One part of a plan: the tagged steps that a person is *asked* about before it, and the *steps* of the worker.

    *group* is the number of the group that begins it.
    """

    group: int
    asked: list[Object] = attrs.field(factory=list)
    steps: list[Object] = attrs.field(factory=list)

    @property
    def gates(self) -> list[str]:
        """The ids of the steps that only wait for a person."""
        return [step["id"] for step in self.asked if is_approval(step)]


def split_plan(plan: Object) -> list[PlanPart]:
    """Return the parts of *plan*, which is sound; only the first one can begin without asking a person.

    The tagged steps of a group are asked about together, and with the gates of the group before that they depend on.
    """
    steps = {step["id"]: step for step in plan["steps"]}
    parts = [PlanPart(-1)]
    for number, group in enumerate(find_groups(upcast(plan))):
        tagged = [steps[name] for name in group if _is_tagged(steps[name])]
        last = parts[-1]
        joined = [step for step in tagged if last.group == number - 1 and _follows(step, last.gates)]
        alone = [step for step in tagged if step not in joined]
        _add(last, joined, [steps[name] for name in group if not _is_tagged(steps[name])])
        if alone:
            parts.append(PlanPart(number))
            _add(parts[-1], alone)
    return parts if parts[0].steps or len(parts) == 1 else parts[1:]


def select_steps(plan: Object, steps: Sequence[Object]) -> Object:
    """Return *plan* with *steps* only, without dependencies on others."""
    if len(steps) == len(plan["steps"]):
        return plan
    names = {step["id"] for step in steps}
    kept = [
        {**step, "depends_on": [each for each in step.get("depends_on", ()) if each in names]}
        for step in plan["steps"]
        if step["id"] in names
    ]
    others = {name: value for name, value in plan.items() if name not in ("order", "parallel_groups")}
    return {**others, "steps": kept}


def merge_reports(first: Object, second: Object) -> dict[str, Any]:
    """Return the reports of two parts, one after the other, as one; the *first* one may be empty."""
    if not first:
        return dict(second)
    lists: Mapping[str, list[Any]] = {
        name: [*first.get(name, ()), *second.get(name, ())]
        for name in ("steps_completed", "steps_skipped", "tool_calls_made")
        if name in first or name in second
    }
    output = "\n".join(text for text in (first["output"], second["output"]) if text)
    return {**first, **second, **lists, "output": output}


def _add(part: PlanPart, asked: Iterable[Object], steps: Iterable[Object] = ()) -> None:
    asked = list(asked)
    part.asked.extend(asked)
    part.steps.extend([*steps, *(step for step in asked if not is_approval(step))])


def _is_tagged(step: Object) -> bool:
    return any(tag in step.get("tags", ()) for tag in TAGS)


def _follows(step: Object, gates: Sequence[str]) -> bool:
    return any(name in gates for name in iterate_dependencies(step))
