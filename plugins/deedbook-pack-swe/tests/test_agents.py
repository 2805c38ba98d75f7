"""The agents of the pack: small cards, and prompts that stay within the budgets of their contracts."""

from importlib.resources import files

import pytest
from swe_examples import TASK, UNITS, find_values, texts, unit_of

from deedbook.policy.conditions import glob_test
from deedbook.workspace.documents import parse_yaml
from deedbook_flow_swe.context import ContextFile, PhaseWork, assemble, estimate_tokens, is_for, list_paths
from deedbook_flow_swe.learning.evidence import PATTERN, Criteria, Mention, assess
from deedbook_flow_swe.learning.world import evidence_path, render_evidence

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


@pytest.mark.parametrize(("size", "lines"), [("tiny", 40), ("small", 120), ("medium", 400), ("large", 800)])
@pytest.mark.parametrize("phase", ["verification", "security"])
def test_patches_of_the_size_that_was_planned_fit_with_all_skills_and_results(definition, phase, size, lines):
    contract = definition.phase(phase)
    values = {"task-id": TASK, "project": "textkit"}
    wanted = glob_test([path for those in list_paths(contract, values) for path in those])
    body = "".join(f"+    assert number_of({n:03}) == {n * 1000:>12}\n" for n in range(lines))
    patch = f"--- /dev/null\n+++ b/tests/test_numbers.py\n@@ -0,0 +1,{lines} @@\n{body}"
    files = [
        ContextFile(path, patch if path.endswith("patch.diff") else text)
        for path, text in texts().items()
        if wanted(path)
    ]
    work = PhaseWork(
        values=values, units=[{**unit_of(name), "size": size} for name in UNITS], persona=persona_of(contract.agent),
        criteria=find_values("tasks/{task-id}/requirements/acceptance-criteria.md", values)[0]["criteria"],
    )  # fmt: skip
    context = assemble(definition, contract, work, files)
    assert (context.fits, context.missing, context.left_out) == (True, (), ())
    assert sum(part.text.count("assert number_of") for part in context.parts) == 2 * lines


def test_facts_that_rules_compare_are_required_parts(definition):
    """What an agent has to repeat is an input that is shown, or the result of a command that ran before."""
    hidden = {
        contract.phase: [each.name for each in contract.inputs if not each.shown] for contract in definition.phases
    }
    assert {phase: names for phase, names in hidden.items() if names} == {
        "security": ["passed"], "integration": ["work_breakdown"],
    }  # fmt: skip


def test_retrospective_sees_evidence_of_tasks_with_a_tag_of_its_own_and_not_their_rewards(definition):
    row = {
        "task_id": "task-7", "session": "5e" * 16, "composite_score": 1, "tool_verified": True,
        "integration_verified": True, "failure_verified": False, "generated": False,
    }  # fmt: skip
    evidence = [
        ContextFile(evidence_path(PATTERN, name), render_evidence(assess(name, PATTERN, rows, Criteria()), mention))
        for name, tags in (("cursor", ["http", "text"]), ("outbox", ["sql"]))
        for mention in [Mention(pattern=name, kind=PATTERN, title="Keep it", text="Always.", proposed=True)]
        for rows in [[{**row, "context_tags": tags}, {**row, "task_id": "task-8", "context_tags": ["slow"]}]]
    ]
    work = PhaseWork(values={"task-id": TASK, "project": "textkit"}, tags=frozenset({"text"}))
    context = assemble(definition, definition.phase("retrospective"), work, evidence)
    assert [(each.path, each.reason) for each in context.left_out] == [(evidence[1].path, "tags")]
    assert context.parts[-1].text.partition("```\n")[2] == (
        'pattern_candidate: "cursor"\nkind: "pattern"\ntitle: "Keep it"\nstatus: "accumulating"\ntasks: 2\n'
        'min_successful_tasks: "2 of 3"\nmin_tool_verified: "2 of 2"\nmin_integration_coverage: "2 of 1"\n```'
    )


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
        ({"type": "library_module"}, '{"touches":["auth"]}', {"python-modules", "secure-coding"}),
        ({"type": "library_module"}, '{"touches":["pii"]}', {"python-modules", "secure-coding"}),
        ({"type": "library_module"}, '{"touches":["secrets"]}', {"python-modules", "secure-coding"}),
        ({"type": "schema_migration"}, "str", {"schema-migrations"}),
        ({"type": "service_module"}, "cursor-based pagination", {"python-modules", "external-services"}),
    ],
)
def test_skills_of_the_builder_follow_the_unit_and_its_interfaces(definition, unit, text, expected):
    skills = definition.skills["builder-agent"]
    always = {"test-first-building", "commits-and-self-check"}
    assert {skill.id for skill in skills if is_for(skill, unit, text)} == always | expected
