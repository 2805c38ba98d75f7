"""Compiling a task against 1,000 skills, beside the skill choice of a run among ten; validating 10,000 steps."""

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.measures import Line, Measure, Value
from benchmarks.rounds import Plan
from deedbook.contract import Skill
from deedbook.sessions.prompts import choose
from deedbook_flow_runcontext.compiler import CompilerSettings, SkillCompiler
from deedbook_flow_runcontext.plans import AbilityFacts
from deedbook_flow_runcontext.skill_catalogue import SkillCatalogue
from deedbook_flow_runcontext.validation import validate_plan

_SKILLS: Final = 1_000
_TRIGGERS: Final = 10
_STEPS: Final = 10_000
_ROUNDS: Final = 15
_VERBS: Final = ("read", "write", "search", "list", "publish", "convert", "merge", "delete", "describe", "count")
_TASK: Final = "please convert the thing of area 417 and publish thing 3, then describe what area 12 lists"
_FOUND: Final = "skill-7 has to convert the thing of area 417 and publish what area 12 lists"


def run(plan: Plan) -> Iterator[Line]:
    """Measure the compiler with both matchers, then the validator on chains of two lengths."""
    skills = [_skill(number) for number in range(plan.size(_SKILLS, 50))]
    catalogue = SkillCatalogue.of(skills, {"echo": AbilityFacts("none")})
    compilers = {name: SkillCompiler(catalogue, CompilerSettings(matcher=name)) for name in ("keyword", "hashing")}
    times = plan.take_turns(
        {
            "ten": lambda: choose(_TASK, skills[:10]),
            "compile": lambda: compilers["keyword"].compile(_FOUND),
            "hashing": lambda: compilers["hashing"].compile(_FOUND),
            "cold": lambda: SkillCompiler(catalogue).compile(_FOUND),
        },
        rounds=_ROUNDS,
    )
    what = f"compiling against {len(skills):,} skills with {len(skills) * _TRIGGERS:,} triggers"
    beside = "to one choice among ten skills"
    yield Measure(f"{what}: {beside}", "at most", 50, times.ratio("compile", "ten"))
    yield Value(f"the same with the matcher `hashing`: {beside}", times.ratio("hashing", "ten"))
    yield Value(f"the same with the index, which is built once for a charter: {beside}", times.ratio("cold", "ten"))
    yield from _validate(plan)


def _validate(plan: Plan) -> Iterator[Line]:
    many = plan.size(_STEPS, 100)
    made = {"few": _plan(many // 4), "many": _plan(many)}
    times = plan.once_each({name: lambda each=each: validate_plan(each) for name, each in made.items()}, rounds=_ROUNDS)
    what = f"ordering and validating {many:,} steps: to {many // 4:,} steps"
    yield Measure(what, "at most", 6, times.ratio("many", "few"), 4)


def _skill(number: int) -> Skill:
    triggers = [f"{verb} thing {number}" for verb in _VERBS]
    return Skill(f"skill-{number}", f"Does what area {number} needs.", "", frozenset({"echo"}), tuple(triggers))


def _plan(count: int) -> dict[str, Any]:
    """Return a chain of steps, each of which also depends on the step ten before it and takes a value from it."""
    steps: list[dict[str, Any]] = []
    for number in range(count):
        step: dict[str, Any] = {
            "id": f"s{number}",
            "description": "",
            "depends_on": [f"s{number - 1}"] if number else [],
        }
        if number >= 10:
            step["inputs"] = {"value": {"step": f"s{number - 10}", "pointer": "/value"}}
        steps.append(step)
    return {"steps": steps, "risks": [], "needs_advisor": False, "schema_version": "v2"}
