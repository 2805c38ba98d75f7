"""Check the structure of a plan before anything of it runs; pure.

`validate_plan` returns findings; a plan with an error among them must not run. Every check is linear in the size of
the plan.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from deedbook import Object

from .findings import Finding, quote_names
from .plans import APPROVAL_GATE, Registry, collect_risks, is_gate, upcast
from .step_graph import BEHIND_A_CYCLE, StepGraph

CHECKS: Final = (
    "non_empty",
    "unique_ids",
    "no_orphans",
    "dag_acyclic",
    "known_targets",
    "required_skills_ordered",
    "policy_consistency",
    "optional_output_safety",
)
"""Every check, in the order of the findings."""
LONGEST_ID: Final = 256
"""The most characters of a step's id, as ``plan_v2`` has it."""


def validate_plan(plan: Object, registry: Registry | None = None) -> tuple[Finding, ...]:
    """Return the findings about *plan*, which fits ``plan_v2`` or ``plan_v1``; empty if it is sound.

    With a *registry*, abilities and skills have to be in it, and the effects and tags of abilities count as tags of the
    steps that call them.
    """
    whole = upcast(plan)
    if not whole["steps"]:
        return (Finding("non_empty", "the plan has no steps; add one for each thing that has to be done"),)
    graph = StepGraph.of(whole["steps"])
    return (
        *_check_ids(graph),
        *_check_references(whole, graph),
        *_check_cycles(graph),
        *_check_targets(graph, registry),
        *_check_order(whole, graph),
        *_check_skills(whole, graph, registry),
        *_check_tags(graph, registry),
        *_check_gates(graph, registry),
        *_check_optional(graph),
    )


def _check_ids(graph: StepGraph) -> Iterator[Finding]:
    for name, count in Counter(step["id"] for step in graph.steps).items():
        if count > 1:
            why = f'{count} steps have the id "{name}"; give each step an id of its own'
            yield Finding("unique_ids", why, (name,))
        if not 1 <= len(name) <= LONGEST_ID:  # only plan_v1 allows it
            why = f'the id "{name[:40]}" has {len(name)} characters; give the step one with 1 to {LONGEST_ID}'
            yield Finding("unique_ids", why, (name,))


# --- references -------------------------------------------------------------------------------------------------------


def _check_references(plan: Object, graph: StepGraph) -> Iterator[Finding]:
    for number, name in graph.unknown:
        own = graph.steps[number]["id"]
        why = f'step "{own}" depends on "{name}", which no step is called; add the step, or correct the id'
        yield Finding("no_orphans", why, (own, name))
    for step in graph.steps:
        for argument, source in step.get("inputs", {}).items():
            yield from _check_input(step, argument, source, graph)
    for skill in plan.get("skills_included", ()):
        unknown = [name for name in skill["steps"] if name not in graph.index]
        if unknown:
            why = f'skill "{skill["name"]}" lists {quote_names(unknown)}, which no step is called; correct its steps'
            yield Finding("no_orphans", why, tuple(unknown))


def _check_input(step: Object, argument: str, source: Object, graph: StepGraph) -> Iterator[Finding]:
    number = graph.index.get(source["step"])
    outputs = graph.steps[number].get("outputs", ()) if number is not None else ()
    first = source["pointer"].split("/")[1].replace("~1", "/").replace("~0", "~") if source["pointer"] else None
    if outputs and first is not None and first not in outputs:
        why = (
            f'step "{step["id"]}" takes "{argument}" from "{first}" of step "{source["step"]}", whose outputs are '
            f"{quote_names(outputs)}; correct the pointer, or add the output"
        )
        yield Finding("no_orphans", why, (step["id"], source["step"]))


def _check_cycles(graph: StepGraph) -> Iterator[Finding]:
    for cycle in graph.find_cycles():
        names = [graph.steps[number]["id"] for number in cycle]
        if len(names) == 1:
            why = f'step "{names[0]}" depends on itself; remove the dependency'
        else:
            why = f"steps {quote_names(names)} depend on each other in a circle; remove one of these dependencies"
        yield Finding("dag_acyclic", why, tuple(names))


def _check_targets(graph: StepGraph, registry: Registry | None) -> Iterator[Finding]:
    for step in graph.steps:
        name = step["id"]
        if "ability" in step and "skill" in step:
            why = f'step "{name}" has an ability and a skill; keep one, or make two steps of it'
            yield Finding("known_targets", why, (name,))
        if doubled := step.get("inputs", {}).keys() & step.get("args", {}).keys():
            why = f'step "{name}" has {quote_names(sorted(doubled))} in args and in inputs; remove one of the two'
            yield Finding("known_targets", why, (name,))
        if registry is None:
            continue
        for kind, known in (("ability", registry.abilities), ("skill", registry.skills)):
            if kind in step and step[kind] not in known:
                why = (
                    f'step "{name}" uses the {kind} "{step[kind]}", which is not available; use another, or declare it'
                )
                yield Finding("known_targets", why, (name,))


# --- order ------------------------------------------------------------------------------------------------------------


def _check_order(plan: Object, graph: StepGraph) -> Iterator[Finding]:
    """Check the order and the groups that the plan itself states."""
    if "order" in plan:
        yield from _check_sequence("order", plan["order"], {name: at for at, name in enumerate(plan["order"])}, graph)
    if "parallel_groups" in plan:
        groups = plan["parallel_groups"]
        at = {name: number for number, group in enumerate(groups) for name in group}
        yield from _check_sequence("parallel_groups", [name for group in groups for name in group], at, graph)


def _check_sequence(member: str, names: Sequence[str], at: Mapping[str, int], graph: StepGraph) -> Iterator[Finding]:
    wrong = [name for name, count in Counter(names).items() if count > 1 or name not in graph.index]
    wrong += [name for name in graph.index if name not in at]
    if wrong:
        why = f"{member} does not have each step once: {quote_names(wrong)}; list every step exactly once"
        yield Finding("required_skills_ordered", why, tuple(wrong))
        return
    for number, before in enumerate(graph.before):
        name = graph.steps[number]["id"]
        for earlier in (graph.steps[each]["id"] for each in before):
            if earlier != name and at[earlier] >= at[name]:
                why = (
                    f'{member} has step "{name}" not after "{earlier}", on which it depends; move "{earlier}" before it'
                )
                yield Finding("required_skills_ordered", why, (name, earlier))


def _check_skills(plan: Object, graph: StepGraph, registry: Registry | None) -> Iterator[Finding]:
    """Check that the steps of a required skill are in earlier groups than those of the skill that requires it."""
    requires: dict[str, Sequence[str]] = dict(registry.skills) if registry else {}
    requires |= {skill["name"]: skill.get("requires", ()) for skill in plan.get("skills_included", ())}
    numbers = _group_by_skill(plan, graph)
    for name, own in numbers.items():
        for required in requires.get(name, ()):
            if required == name:
                continue
            if not numbers.get(required):
                why = f'skill "{name}" requires the skill "{required}", which has no step; add a step for it before'
                yield Finding("required_skills_ordered", why, _ids(graph, own))
                continue
            first = min(own, key=graph.group_of.__getitem__)
            last = max(numbers[required], key=graph.group_of.__getitem__)
            groups = graph.group_of[last], graph.group_of[first]
            if BEHIND_A_CYCLE not in groups and groups[0] >= groups[1]:
                late, early = _ids(graph, [last, first])
                why = (
                    f'step "{late}" of the skill "{required}" does not run before step "{early}" of "{name}", which '
                    f'requires it; let "{early}" depend on "{late}"'
                )
                yield Finding("required_skills_ordered", why, (early, late))


def _group_by_skill(plan: Object, graph: StepGraph) -> dict[str, list[int]]:
    """Return the indexes of the steps of each skill."""
    found: dict[str, dict[int, None]] = {}
    for skill in plan.get("skills_included", ()):
        listed = (graph.index[name] for name in skill["steps"] if name in graph.index)
        found.setdefault(skill["name"], {}).update(dict.fromkeys(listed))
    for number, step in enumerate(graph.steps):
        if "skill" in step:
            found.setdefault(step["skill"], {})[number] = None
    return {name: list(numbers) for name, numbers in found.items() if numbers}


def _ids(graph: StepGraph, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(graph.steps[number]["id"] for number in numbers)


# --- policy -----------------------------------------------------------------------------------------------------------


def _check_tags(graph: StepGraph, registry: Registry | None) -> Iterator[Finding]:
    for step in graph.steps:
        name, tags = step["id"], step.get("tags", ())
        if step.get("optional") and step.get("halt_on_failure"):
            why = f'step "{name}" is optional and halts the plan if it fails; remove optional or halt_on_failure'
            yield Finding("policy_consistency", why, (name,))
        if step.get("optional") and is_gate(step) and APPROVAL_GATE in tags:
            why = f'step "{name}" is an approval gate and optional, so it could be skipped; remove one of the two'
            yield Finding("policy_consistency", why, (name,))
        facts = registry.abilities.get(step.get("ability", "")) if registry else None
        risks = collect_risks(step)
        if facts and risks and facts.effects in ("none", "read"):
            why = (
                f'step "{name}" has the tag {" and ".join(sorted(risks))}, but its ability "{step["ability"]}" has the '
                f"effects {facts.effects}; remove the tag, or name the ability that changes something"
            )
            yield Finding("policy_consistency", why, (name,))


def _check_gates(graph: StepGraph, registry: Registry | None) -> Iterator[Finding]:
    """Refuse a risky step that a gate is meant to guard and that no gate precedes.

    If a plan has gates, each destructive or irreversible step needs one in an earlier group, or an approval of its own.
    """
    gates = [number for number, step in enumerate(graph.steps) if is_gate(step) and not collect_risks(step, registry)]
    sorted_ = [number for number in gates if graph.group_of[number] != BEHIND_A_CYCLE]
    if not sorted_:
        return
    first = min(sorted_, key=graph.group_of.__getitem__)
    gate = graph.steps[first]["id"]
    for number, step in enumerate(graph.steps):
        risks = collect_risks(step, registry)
        at = graph.group_of[number]
        if not risks or APPROVAL_GATE in step.get("tags", ()) or at == BEHIND_A_CYCLE or at > graph.group_of[first]:
            continue
        name = step["id"]
        why = (
            f'step "{name}" is {" and ".join(sorted(risks))} and does not run after the gate "{gate}", which comes too '
            f'late to guard it; let "{name}" depend on "{gate}", or give "{name}" the tag {APPROVAL_GATE}'
        )
        yield Finding("policy_consistency", why, (name, gate))


def _check_optional(graph: StepGraph) -> Iterator[Finding]:
    for step in graph.steps:
        if step.get("optional"):
            continue
        name = step["id"]
        inputs: Mapping[str, Any] = step.get("inputs", {})
        for argument, source in inputs.items():
            if _is_optional(source["step"], graph) and "default" not in source:
                why = (
                    f'step "{name}" is required and takes "{argument}" from the optional step "{source["step"]}"; give '
                    f"the input a default, or make both optional or both required"
                )
                yield Finding("optional_output_safety", why, (name, source["step"]))
        taken = {source["step"] for source in inputs.values()}
        for earlier in dict.fromkeys(step.get("depends_on", ())):
            if earlier not in taken and _is_optional(earlier, graph):
                why = f'step "{name}" is required and depends on the optional step "{earlier}", which may be skipped'
                yield Finding("optional_output_safety", why, (name, earlier), "warning")


def _is_optional(name: str, graph: StepGraph) -> bool:
    number = graph.index.get(name)
    return number is not None and graph.steps[number].get("optional") is True
