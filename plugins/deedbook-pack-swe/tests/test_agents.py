"""The agents of the pack: small cards, and prompts that stay within the budgets of their contracts."""

from importlib.resources import files

import pytest
from swe_examples import GATES, REPOSITORY, TASK, UNITS, texts, unit_of

from deedbook.policy.conditions import glob_test
from deedbook.workspace.documents import parse_yaml
from deedbook_flow_swe.context import ContextFile, PhaseWork, assemble, estimate_tokens, is_for, list_paths

AGENTS = files("deedbook_pack_swe") / "data" / "agents"
BUDGETS = {
    "requirements": 800,
    "architecture": 2000,
    "planning": 1500,
    "implementation": 3000,
    "verification": 2500,
    "security": 2000,
    "integration": 2000,
    "retrospective": 3500,
}
"""The tokens of each phase's prompt."""
RESULTS = ("unit-tests.json", "integration-tests.json", "lint.json", "secrets-scan.json", "regression-results.json")
"""What the runner writes before the agent of the same phase is asked."""
NEEDED = {
    "verification": "unit-tests.json",
    "security": "secrets-scan.json",
    "integration": "regression-results.json",
}
"""The result that the agent of a phase has to see."""


def persona_of(agent):
    return " ".join((AGENTS / agent / "persona.md").read_text().split())


def test_every_phase_has_its_own_agent_with_a_small_card(definition):
    names = [contract.agent for contract in definition.phases]
    assert len(set(names)) == 8
    assert sorted(names) == sorted(each.name for each in AGENTS.iterdir())
    for name in names:
        raw = (AGENTS / name / ".agent").read_text()
        card = parse_yaml(raw.encode(), name).value
        assert estimate_tokens(raw).tokens <= 150
        assert card["identity"] == name
        assert 1 <= len(definition.skills[name]) <= card["budget"]["max_skills"]


def test_personas_say_what_the_agent_cannot_do(definition):
    for contract in definition.phases:
        persona = persona_of(contract.agent)
        assert "You cannot" in persona
        assert "`blocked`" in persona


def test_budgets_are_between_800_and_3500_tokens(definition):
    assert {contract.phase: contract.tokens for contract in definition.phases} == BUDGETS


@pytest.mark.parametrize("phase", BUDGETS)
def test_prompt_of_the_example_is_within_its_budget_with_every_skill(definition, phase):
    contract = definition.phase(phase)
    values, unit, added = {"task-id": TASK, "project": "textkit"}, None, ()
    if definition.works_units(phase):
        values, unit = {**values, "unit-id": UNITS[1]}, unit_of(UNITS[1])
        added = tuple(ContextFile(path, (REPOSITORY / path).read_text()) for path in unit["files"])
    inputs, scope = list_paths(contract, values)
    wanted = glob_test([*inputs, *scope])
    earlier = [*GATES][: [*BUDGETS].index(phase)]
    found = [
        ContextFile(path, text)
        for path, text in texts().items()
        if wanted(path) and (path.split("/")[2] in ("META.yaml", *earlier) or path.endswith(RESULTS))
    ]
    work = PhaseWork(
        values=values, tags=frozenset({"python"}), unit=unit, added=added, persona=persona_of(contract.agent)
    )
    context = assemble(definition, contract, work, found)
    assert context.missing == ()
    assert context.fits
    dropped = [each.path for each in context.left_out if each.reason == "budget"]
    assert [path for path in dropped if path.startswith("agents/")] == []
    shown = {part.path.rpartition("/")[2] for part in context.parts}
    needed = {
        "verification": "unit-tests.json",
        "security": "secrets-scan.json",
        "integration": "regression-results.json",
    }
    assert needed.get(phase, "persona.md") in shown


def test_builder_sees_one_unit_and_no_record_of_others(definition):
    contract = definition.phase("implementation")
    values = {"task-id": TASK, "project": "textkit", "unit-id": UNITS[0]}
    hidden = [
        f"tasks/{TASK}/planning/work-breakdown.md",
        f"tasks/{TASK}/implementation/units/{UNITS[1]}/patch.diff",
        f"tasks/{TASK}/verification/reviewer-report.md",
        f"tasks/{TASK}/retrospective/lessons.md",
        "tasks/task-2026-000/retrospective/lessons.md",
        "agents/builder-agent/rewards.md",
        "world/verified-patterns/cursor.md",
        "repos/textkit/textkit/slugs.py",
    ]
    shown = [f"tasks/{TASK}/verification/BLOCKED.md", f"tasks/{TASK}/security/BLOCKED.md"]
    inputs, scope = list_paths(contract, values)
    wanted = glob_test([*inputs, *scope])
    assert [path for path in hidden if wanted(path)] == []
    assert [path for path in shown if not wanted(path)] == []


@pytest.mark.parametrize(
    ("unit", "text", "expected"),
    [
        ({"type": "library_module"}, "str", {"python-modules"}),
        ({"type": "library_module"}, "a Bearer token", {"python-modules", "secure-coding"}),
        ({"type": "auth"}, "str", {"secure-coding"}),
        ({"type": "schema_migration"}, "str", {"schema-migrations"}),
        ({"type": "service_module"}, "cursor-based pagination", {"python-modules", "external-services"}),
    ],
)
def test_skills_of_the_builder_follow_the_unit_and_its_interfaces(definition, unit, text, expected):
    skills = definition.skills["builder-agent"]
    always = {"test-first-building", "commits-and-self-check"}
    assert {skill.id for skill in skills if is_for(skill, unit, text)} == always | expected
