"""What the plan of a context means: skills, tools, groups, and whether a person must approve it; pure."""

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from deedbook import Failed, Object
from deedbook.format.schema import Schemas, data_folder

from .findings import quote_names
from .plans import APPROVAL_GATE, DESTRUCTIVE, IRREVERSIBLE, upcast
from .step_graph import StepGraph
from .validation import validate_plan

TAGS: Final = (DESTRUCTIVE, IRREVERSIBLE, APPROVAL_GATE)
"""The tags of steps that a person must approve."""

PolicyVerdict: TypeAlias = Literal["ALLOW", "REQUIRE_REVIEW"]


class PlannedState(Protocol):
    """A context, or the state of a run: what is read of it here."""

    @property
    def state(self) -> str:
        """The name of the state."""

    @property
    def plan(self) -> Object | None:
        """The plan, if there is one."""


@attrs.frozen
class PolicyDecision:
    """Whether a person must approve a plan: *steps* has the tags of each step that requires it."""

    verdict: PolicyVerdict
    reason: str = ""
    steps: dict[str, list[str]] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return attrs.asdict(self)


def check_policy(context: PlannedState) -> PolicyDecision:
    """Return REQUIRE_REVIEW if a step of the plan is tagged destructive, irreversible or approval-gate.

    Raises `Failed` (``NOT_AVAILABLE``) if the context has no plan.
    """
    return check_steps(_read_plan(context)["steps"])


def check_steps(steps: Iterable[Object]) -> PolicyDecision:
    """Return REQUIRE_REVIEW if one of *steps* is tagged destructive, irreversible or approval-gate."""
    tagged = {step["id"]: [tag for tag in TAGS if tag in step.get("tags", ())] for step in steps}
    found = {name: tags for name, tags in tagged.items() if tags}
    if not found:
        return PolicyDecision("ALLOW")
    tags = [tag for tag in TAGS if any(tag in each for each in found.values())]
    why = f"{quote_names(list(found))} {'is' if len(found) == 1 else 'are'} tagged {', '.join(tags)}"
    return PolicyDecision("REQUIRE_REVIEW", why, found)


def plan_summary(context: PlannedState) -> dict[str, Any]:
    """Return a summary of the plan of *context*, as JSON; raises `Failed` (``NOT_AVAILABLE``) if it has none."""
    plan = _read_plan(context)
    excluded = plan.get("skills_excluded", [])
    policy = check_policy(context)
    tools = sorted({step["ability"] for step in plan["steps"] if "ability" in step})
    return {
        "skills_included": [
            {"name": each["name"], "reason": each["reason"]} for each in plan.get("skills_included", [])
        ],
        "skills_excluded": [dict(each) for each in excluded],
        "missing_tools": sorted({tool for each in excluded for tool in each["missing_tools"]}),
        "step_count": len(plan["steps"]),
        "tool_count": len(tools),
        "tools": tools,
        "parallel_groups": find_groups(plan),
        "policy": policy.as_json(),
        "halt_steps": [step["id"] for step in plan["steps"] if step.get("halt_on_failure")],
        "approval_needed": policy.verdict == "REQUIRE_REVIEW",
        "optional_warnings": [
            finding.message for finding in validate_plan(plan) if finding.check == "optional_output_safety"
        ],
    }


def find_groups(plan: Object) -> list[list[str]]:
    """Return the parallel groups that a plan states, or those that follow from its dependencies."""
    stated = plan.get("parallel_groups")
    return [list(group) for group in stated] if stated else StepGraph.of(plan["steps"]).groups


def _read_plan(context: PlannedState) -> dict[str, Any]:
    """Return the plan as ``plan_v2``."""
    plan = context.plan
    if plan is None:
        raise Failed("NOT_AVAILABLE", f"the context is {context.state} and has no plan")
    schema = "plan_v2" if plan.get("schema_version") == "v2" else "plan_v1"
    violations = Schemas.load(data_folder("schemas")).interpreted(schema).violations(dict(plan))
    if violations:
        raise Failed("NOT_AVAILABLE", f"the plan of the context does not fit {schema}: {violations[0]}")
    return upcast(plan)
