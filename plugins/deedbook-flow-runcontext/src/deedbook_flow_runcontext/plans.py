"""Plans as JSON: ``plan_v2``, and ``plan_v1`` upcast to it; pure.

The functions of this package take plans that fit their schema (``schemas/plan_v2.json``, ``schemas/plan_v1.json``).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook import Object

VERSION: Final = "v2"
DESTRUCTIVE: Final = "destructive"
IRREVERSIBLE: Final = "irreversible"
APPROVAL_GATE: Final = "approval-gate"
RISKS: Final = (DESTRUCTIVE, IRREVERSIBLE)
"""The tags of a step that changes what cannot be restored."""

_STEP_V1: Final = ("id", "description", "depends_on")
_PLAN_V1: Final = ("risks", "needs_advisor", "needs_scaffolder")


@attrs.frozen
class AbilityFacts:
    """What the registry declares about an ability: its *effects* and its policy *tags*."""

    effects: str = "write"
    tags: frozenset[str] = frozenset()

    @property
    def risks(self) -> frozenset[str]:
        """The tags among `RISKS` that a call of the ability has; the effects ``irreversible`` count as the tag."""
        by_effects = {IRREVERSIBLE} if self.effects == IRREVERSIBLE else set()
        return frozenset(self.tags & {*RISKS} | by_effects)


@attrs.frozen
class Registry:
    """What a plan can use: *abilities* by id, and by the name of each skill the skills that it requires."""

    abilities: Mapping[str, AbilityFacts]
    skills: Mapping[str, tuple[str, ...]]


def upcast(plan: Object) -> dict[str, Any]:
    """Return a ``plan_v1`` as ``plan_v2``; a ``plan_v2`` is returned as a copy of its top level.

    Members that ``plan_v1`` does not define have no meaning there, so they are left out.
    """
    if plan.get("schema_version") == VERSION:
        return dict(plan)
    steps = [{name: step[name] for name in _STEP_V1 if name in step} for step in plan["steps"]]
    return {
        "steps": steps,
        **{name: plan[name] for name in _PLAN_V1 if name in plan},
        "schema_version": VERSION,
    }


def iterate_dependencies(step: Object) -> Iterator[str]:
    """Yield the ids that a step depends on: those that it names, and the steps that its inputs come from."""
    yield from step.get("depends_on", ())
    for source in step.get("inputs", {}).values():
        yield source["step"]


def collect_risks(step: Object, registry: Registry | None = None) -> frozenset[str]:
    """Return the tags among `RISKS` of a step: its own, and those of its ability if the *registry* has it."""
    own = frozenset(step.get("tags", ())) & {*RISKS}
    facts = registry.abilities.get(step.get("ability", "")) if registry else None
    return own | facts.risks if facts else own


def is_approval(step: Object) -> bool:
    """Return whether a step only waits for a person: a gate that calls no ability and works under no skill."""
    return APPROVAL_GATE in step.get("tags", ()) and is_gate(step) and not {"ability", "skill"} & step.keys()


def is_gate(step: Object) -> bool:
    """Return whether a step guards those after it: it waits for a person, or halts the plan if it fails.

    A destructive or irreversible step is no gate: its approval or its failure is about the step itself.
    """
    tags = step.get("tags", ())
    stops = APPROVAL_GATE in tags or step.get("halt_on_failure") is True
    return stops and not any(tag in tags for tag in RISKS)
