"""The prompt of a phase is made from the files of its contract, in a fixed order and within its budget."""

import itertools
import json
import random

import attrs
import pytest
from pipelines import META, PATCH, SPEC, WORK, WORKSPACES, definition_of

from deedbook.contract import TokenCount
from deedbook.format import canonical
from deedbook_flow_swe.assignment import outline
from deedbook_flow_swe.context import ContextFile, PhaseWork, assemble, estimate_tokens, is_for, list_paths, read_tags
from deedbook_flow_swe.definition import AgentSkill
from deedbook_flow_swe.running.gates import build_gate, render_gate
from deedbook_flow_swe.shown import RunnerFiles

UNIT = {"id": "unit-001", "type": "library", "size": "small", "criteria": ["AC-001"], "tests": []}
VALUES = {"task-id": "task-1", "unit-id": "unit-001"}
META_FILE = ContextFile("tasks/task-1/META.yaml", META)
SPEC_FILE = ContextFile("tasks/task-1/outline/spec.md", SPEC)
WORK_FILE = ContextFile("tasks/task-1/outline/work.md", WORK)


def pattern(name, *tags, text="Try again.\n"):
    return ContextFile(f"world/patterns/{name}.md", f"---\ntags: [{', '.join(tags)}]\n---\n{text}")


@pytest.fixture
def definition(small):
    return definition_of(small)


def make(definition, phase, *files, count=estimate_tokens, tokens=None, **work):
    contract = definition.phase(phase)
    if tokens is not None:
        contract = attrs.evolve(contract, tokens=tokens)
    work.setdefault("values", VALUES)
    return assemble(definition, contract, PhaseWork(**work), files, count)


def parts(context):
    return [(part.kind, part.path) for part in context.parts]


def test_parts_stand_in_a_fixed_order(definition):
    added = (ContextFile("tasks/task-1/check/BLOCKED.md", "Mend it.\n"),)
    context = make(definition, "build", SPEC_FILE, unit=UNIT, persona="You build.", added=added)
    assert parts(context) == [
        ("assignment", "build"),
        ("persona", "agents/builder/persona.md"),
        ("unit", "unit-001"),
        ("input", "tasks/task-1/outline/spec.md"),
        ("added", "tasks/task-1/check/BLOCKED.md"),
        ("skill", "agents/builder/skills/steps.md"),
    ]
    assert context.missing == ()
    assert context.counted == "estimate"


def test_input_for_the_rules_is_shown_only_as_a_file_of_the_scope(definition):
    contract = definition.phase("build")
    hidden = attrs.evolve(contract, inputs=tuple(attrs.evolve(each, shown=False) for each in contract.inputs))
    outside = attrs.evolve(hidden, scope=attrs.evolve(hidden.scope, include=()))
    inside = attrs.evolve(hidden, scope=attrs.evolve(hidden.scope, include=(SPEC_FILE.path,)))
    for each, expected in ((outside, []), (inside, [("file", SPEC_FILE.path)])):
        context = assemble(definition, each, PhaseWork(values=VALUES, unit=UNIT), (SPEC_FILE,))
        assert [part for part in parts(context) if part[1] == SPEC_FILE.path] == expected
        assert context.missing == ()
        assert SPEC_FILE.path not in [omission.path for omission in context.left_out]
    assert assemble(definition, outside, PhaseWork(values=VALUES, unit=UNIT), ()).missing == ("spec",)


def test_prompt_is_the_same_in_whatever_order_files_are_read(definition):
    files = [SPEC_FILE, META_FILE, WORK_FILE, pattern("a", "http"), pattern("b", "python")]
    found = set()
    for order in itertools.islice(itertools.permutations(files), 0, 120, 17):
        found.add(make(definition, "outline", *order, tags=frozenset({"http", "python"})).text)
    assert len(found) == 1


def test_text_has_the_assignment_and_the_whole_files(definition):
    text = make(definition, "build", SPEC_FILE, unit=UNIT, persona="You build.").text
    assert "Make the change of exactly one unit." in text
    assert "- tasks/task-1/build/units/unit-001/patch.diff" in text
    assert "front matter {schema_version: v1, unit: text}" in text
    assert "- the note names another unit" in text
    assert SPEC in text
    assert "You build." not in text


def test_digests_are_those_of_the_contents(definition):
    context = make(definition, "build", SPEC_FILE, unit=UNIT)
    (found,) = [part for part in context.parts if part.kind == "input"]
    assert found.digest == canonical.digest(SPEC.encode())


def test_file_cannot_close_its_fence(definition):
    text = make(definition, "build", ContextFile(SPEC_FILE.path, SPEC + "````\n# Phase\n"), unit=UNIT).text
    assert f"`````\n{SPEC}````\n# Phase\n`````" in text


# --- scope ------------------------------------------------------------------------------------------------------------


def test_file_outside_of_the_scope_is_left_out(definition):
    patch = ContextFile("tasks/task-1/build/units/unit-002/patch.diff", PATCH)
    rewards = ContextFile("agents/outliner/rewards.md", "+1\n")
    context = make(definition, "outline", META_FILE, patch, rewards)
    assert {(each.path, each.reason) for each in context.left_out} == {
        (patch.path, "excluded"),
        (rewards.path, "excluded"),
    }


def test_files_are_selected_by_the_tags_of_the_task(definition):
    files = [pattern("a", "http"), pattern("b", "sql"), ContextFile("world/patterns/c.md", "No tags.\n")]
    context = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}))
    assert ("file", "world/patterns/a.md") in parts(context)
    assert [(each.path, each.reason) for each in context.left_out] == [
        ("world/patterns/b.md", "tags"),
        ("world/patterns/c.md", "tags"),
    ]


@pytest.mark.parametrize(
    ("path", "text", "tags"),
    [
        ("a.md", "---\ntags: [x, y]\n---\n", {"x", "y"}),
        ("a.yaml", "tags: [x]\n", {"x"}),
        ("a.json", '{"tags": ["x", 1]}', {"x"}),
        ("a.md", "---\ntags: x\n---\n", set()),
        ("a.md", "---\ntags: [x\n---\n", set()),
        ("a.yaml", "- x\n", set()),
    ],
)
def test_tags_are_read_from_the_front_matter(path, text, tags):
    assert read_tags(ContextFile(path, text)) == tags


def test_missing_inputs_are_named(definition):
    assert make(definition, "check", SPEC_FILE).missing == ("patches",)
    assert make(definition, "build", unit=UNIT).missing == ("spec",)


def test_list_of_paths_has_inputs_and_scope(definition):
    inputs, scope = list_paths(definition.phase("check"), VALUES)
    assert inputs == ("tasks/task-1/outline/spec.md", "tasks/task-1/build/units/*/patch.diff")
    assert scope == ("tasks/task-1/outline/**", "tasks/task-1/build/units/**", "tasks/task-1/check/unit-tests.json")


# --- what the runner writes -------------------------------------------------------------------------------------------


def row(name, outcome="passed"):
    return {"id": f"tests/test_{name}.py::test_it", "outcome": outcome}


def test_result_of_a_command_that_ran_before_is_required_and_shown_in_short(definition):
    tests = [*(row(n) for n in range(300)), row("bad", "failed")]
    result = {"schema_version": "v1", "unit_id": "unit-001", "exit_code": 1, "passed": 300, "failed": 1, "tests": tests}
    file = ContextFile("tasks/task-1/check/unit-tests.json", json.dumps([result]))
    patch = ContextFile("tasks/task-1/build/units/unit-001/patch.diff", PATCH)
    context = make(definition, "check", SPEC_FILE, patch, file, tokens=1)
    (part,) = [each for each in context.parts if each.path == file.path]
    assert (part.kind, part.digest) == ("added", canonical.digest(file.text.encode()))
    shown = json.loads(part.text.split("```")[1])
    assert shown == [
        {
            "unit_id": "unit-001",
            "exit_code": 1,
            "passed": 300,
            "failed": 1,
            "tests": [tests[-1], "… and 300 that passed"],
        }
    ]


def test_long_list_of_a_report_is_counted(definition):
    result = {"exit_code": 1, "tests": [row(n, "failed") for n in range(1000)]}
    file = ContextFile("tasks/task-1/check/unit-tests.json", json.dumps(result))
    (part,) = [each for each in make(definition, "check", SPEC_FILE, file).parts if each.path == file.path]
    *shown, more = json.loads(part.text.split("```")[1])["tests"]
    assert shown == result["tests"][: len(shown)]
    assert more == f"… and {1000 - len(shown)} more, 1000 in all"
    assert part.tokens < 500


def test_report_of_another_tool_keeps_its_members(definition):
    report = {"status": "failed", "source": "a", "outputs": [1], "time": 3, "digest": "x"}
    file = ContextFile("tasks/task-1/check/unit-tests.json", json.dumps(report))
    (part,) = [each for each in make(definition, "check", SPEC_FILE, file).parts if each.path == file.path]
    assert json.loads(part.text.split("```")[1]) == report


def test_gate_file_is_shown_without_digests(definition):
    gate = build_gate(
        definition.phase("outline"), task="task-1", iteration=2, inputs={"a.md": "0" * 64}, outputs={"b.md": "1" * 64},
        time="2026-01-31T09:00:00Z",
    )  # fmt: skip
    file = ContextFile("tasks/task-1/outline/APPROVED.md", render_gate(gate))
    (part,) = [each for each in make(definition, "check", SPEC_FILE, file).parts if each.path == file.path]
    assert part.text == (
        f'# {file.path}\n\n```\nphase: "outline"\niteration: 2\n'
        'rules: ["no-open-questions", "few-criteria"]\nagent: "outliner"\n```'
    )


def test_task_is_shown_without_what_says_nothing_about_the_work(definition):
    text = make(definition, "outline", META_FILE).text
    assert 'tags: ["http", "python"]' in text
    assert "digest" not in text
    assert "submitted_by" not in text


def test_rollback_log_is_shown_for_the_task_only():
    log = "# Rollbacks\n\n## task-1\n\n- mine\n\n## task-11\n\n- of another task\n"
    definition = definition_of(WORKSPACES / "small")
    shown = RunnerFiles(definition, VALUES).show("shared/rollback-log.md", log)
    assert shown == "- mine\n"
    assert (
        RunnerFiles(definition, {"task-id": "task-2"}).show("shared/rollback-log.md", log)
        == "task-2 has no rollback.\n"
    )


@pytest.mark.parametrize("text", ["[", "[" * 100_000, "{}x", "---\na: [\n---\n", ""])
@pytest.mark.parametrize("path", ["check/unit-tests.json", "outline/APPROVED.md", "META.yaml"])
def test_file_that_cannot_be_read_is_shown_as_it_is(definition, path, text):
    assert RunnerFiles(definition, VALUES).show(f"tasks/task-1/{path}", text) == text


def test_builder_gets_the_criteria_of_its_unit(definition):
    criteria = [{"id": f"AC-00{n}", "test": f"tests/test_x.py::test_{n}"} for n in (1, 2)]
    text = make(definition, "build", SPEC_FILE, unit=UNIT, criteria=criteria).text
    assert "tests/test_x.py::test_1" in text
    assert "tests/test_x.py::test_2" not in text


# --- skills -----------------------------------------------------------------------------------------------------------


def skills_of(context):
    return [part.path.rpartition("/")[2] for part in context.parts if part.kind == "skill"]


def test_skill_is_chosen_by_the_type_of_the_unit(definition):
    context = make(definition, "build", SPEC_FILE, unit={**UNIT, "type": "auth"})
    assert skills_of(context) == ["steps.md", "tokens.md"]


def test_skill_is_chosen_by_what_the_inputs_mention(definition):
    spec = ContextFile(SPEC_FILE.path, SPEC + "Calls carry Bearer Tokens.\n")
    assert skills_of(make(definition, "build", spec, unit=UNIT)) == ["steps.md", "tokens.md"]
    context = make(definition, "build", SPEC_FILE, unit=UNIT)
    assert skills_of(context) == ["steps.md"]
    assert [(each.path, each.reason) for each in context.left_out] == [("agents/builder/skills/tokens.md", "when")]


def test_skills_outside_of_the_scope_are_no_part(definition):
    context = make(definition, "check", SPEC_FILE, ContextFile("tasks/task-1/build/units/u/patch.diff", PATCH))
    assert skills_of(context) == []


@pytest.mark.parametrize(
    ("text", "answer"), [("a token", True), ("Tokens", True), ("tokenless", True), ("detoken", False), ("", False)]
)
def test_word_is_mentioned_from_its_beginning_on(text, answer):
    skill = AgentSkill(id="x", name="x", description="", path="x", digest="", text="", mentions=("token",))
    assert is_for(skill, None, text) is answer


# --- budget -----------------------------------------------------------------------------------------------------------


def test_optional_parts_are_left_out_from_the_end_until_the_prompt_fits(definition):
    files = [pattern(name, "http", text="x" * 400) for name in "abc"]
    whole = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}), tokens=10_000)
    assert [part.kind for part in whole.parts][-4:] == ["skill", "file", "file", "file"]
    less = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}), tokens=whole.tokens - 110)
    assert [(each.path, each.reason) for each in less.left_out] == [("world/patterns/c.md", "budget")]
    assert less.fits
    least = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}), tokens=whole.tokens - 360)
    assert [each.path for each in least.left_out] == [
        "world/patterns/c.md", "world/patterns/b.md", "world/patterns/a.md", "agents/outliner/skills/asking.md",
    ]  # fmt: skip


def test_small_part_is_kept_after_a_large_one_that_has_no_room(definition):
    files = [pattern("a", "http", text="x" * 4000), pattern("b", "http")]
    context = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}))
    assert context.fits
    assert [(each.path, each.reason) for each in context.left_out] == [("world/patterns/a.md", "budget")]
    assert ("file", "world/patterns/b.md") in parts(context)


def test_budget_grows_with_the_criteria_and_the_units_of_the_task(definition):
    grown = attrs.evolve(
        definition.phase("check"), tokens=100, tokens_each_criterion=7, tokens_each_unit={"small": 10, "large": 1000}
    )
    units = [{"id": "unit-001", "size": "small"}, {"id": "unit-002", "size": "large"}, {"id": "unit-003", "size": "x"}]
    work = PhaseWork(values=VALUES, units=units, criteria=[{"id": "AC-001", "test": "t"}] * 3)
    assert assemble(definition, grown, work, ()).budget == 100 + 21 + 1010
    assert assemble(definition, grown, attrs.evolve(work, unit=units[0]), ()).budget == 100 + 21 + 10


@pytest.mark.parametrize(("request_bytes", "more"), [(0, 0), (40, 10), (4000, 50)])
def test_budget_grows_with_the_request_up_to_a_limit(definition, request_bytes, more):
    contract = attrs.evolve(definition.phase("outline"), tokens=100, tokens_request=50)
    work = PhaseWork(values=VALUES, request="x" * request_bytes)
    assert assemble(definition, contract, work, ()).budget == 100 + more


def test_required_parts_over_the_budget_do_not_fit(definition):
    context = make(definition, "build", ContextFile(SPEC_FILE.path, SPEC + "#" * 12_000), unit=UNIT)
    assert not context.fits
    assert [part.kind for part in context.parts] == ["assignment", "unit", "input"]
    assert context.tokens > context.budget


def test_count_of_the_provider_decides_and_is_asked_seldom(definition):
    asked = []

    def count(text):
        asked.append(text)
        return TokenCount(len(text), "provider")

    files = [pattern(name, "http", text="x" * 400) for name in "abcdefgh"]
    context = make(definition, "outline", META_FILE, *files, tags=frozenset({"http"}), tokens=2200, count=count)
    assert context.counted == "provider"
    assert context.fits
    assert context.tokens == len(asked[-1])
    assert len(asked) <= 3


def test_persona_counts_and_is_no_part_of_the_text(definition):
    without = make(definition, "build", SPEC_FILE, unit=UNIT)
    persona = make(definition, "build", SPEC_FILE, unit=UNIT, persona="You build. " * 40)
    assert persona.tokens > without.tokens + 100
    assert persona.text == without.text


def test_budget_is_kept_for_any_files(definition):
    """Whatever is read, the prompt fits, or only required parts are left."""
    chance = random.Random(7)
    for _ in range(50):
        files = [pattern(f"p{n}", "http", text="y" * chance.randrange(900)) for n in range(chance.randrange(8))]
        context = make(
            definition, "outline", META_FILE, *files, tags=frozenset({"http"}), tokens=chance.randrange(50, 900)
        )
        assert context.fits or all(part.required for part in context.parts)
        assert len(context.parts) + len(context.left_out) == 3 + len(files)


@pytest.mark.parametrize(
    ("schema", "shape"),
    [
        ({"type": "string"}, "text"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "[a|b]"),
        ({"type": "object", "required": ["a"], "properties": {"a": {"const": "v1"}, "b": {}}}, "{a: v1, b?: any}"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer|null"),
        ({"type": ["string", "null"]}, "text|null"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}}, "boolean"),
        ({"type": "string", "pattern": "^AC-[0-9]{3}$"}, "AC-001"),
        ({"type": "string", "pattern": "^[^:]+:[0-9]+$"}, "/[^:]+:[0-9]+/"),
        ({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}, "text"),
        (
            {
                "type": "object",
                "propertyNames": {"pattern": "^unit-[0-9]{3}$"},
                "additionalProperties": {"type": "object", "properties": {"position": {"type": "integer"}}},
            },
            "{unit-001: {position?: integer}, …}",
        ),
    ],
)
def test_schema_is_shown_as_a_short_shape(schema, shape):
    assert outline(schema) == shape
