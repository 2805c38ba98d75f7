"""`deedbook swe list|show|lint|context`, as a person calls them."""

import pytest
from commandline import Place
from pipelines import META, PATCH, SPEC, WORK, replace_text

from deedbook.format import canonical

S = ".system/swe"


@pytest.fixture
def shop(small):
    """Return the example workspace with the files of a task that was outlined."""
    place = Place(small)
    for path, text in {
        "META.yaml": META,
        "outline/spec.md": SPEC,
        "outline/work.md": WORK,
        "build/units/unit-001/patch.diff": PATCH,
    }.items():
        file = small / "tasks/task-1" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return place


# --- list, show -------------------------------------------------------------------------------------------------------


def test_list_shows_each_file_with_its_place(shop):
    lines = shop.run("swe", "list", status=0).out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["pipelines", "small"], ["contracts", "build"], ["contracts", "check"], ["contracts", "outline"],
        ["schemas", "note_v1"], ["schemas", "report_v1"], ["schemas", "spec_v1"], ["schemas", "unit_tests_v1"],
        ["schemas", "work_v1"],
    ]  # fmt: skip
    assert lines[1].endswith("Make the change of exactly one unit.             .system/swe/contracts/build.yaml:2")
    files = shop.run("swe", "list", "--json", status=0).fits("output_swe_list_v1")["files"]
    assert files[0] == {
        "axis": "pipelines", "id": "small", "title": "A change in three phases", "pack": None, "overrides": None,
        "place": ".system/swe/pipeline.yaml:2",
    }  # fmt: skip


def test_list_of_a_workspace_without_pipelines_says_where_they_go(shop):
    (shop.path / S).rename(shop.path / "elsewhere")
    assert "add .system/swe/pipeline.yaml" in shop.run("swe", "list", status=0).out


def test_show_lists_the_phases_in_order(shop):
    lines = shop.run("swe", "show", status=0).out.splitlines()
    assert lines[0] == "small: A change in three phases"
    assert [line.split()[:3] for line in lines[1:]] == [
        ["outline", "outliner", "mid"], ["build", "builder", "mid"], ["check", "checker", "mid"],
    ]  # fmt: skip
    phases = shop.run("swe", "show", "--json", status=0).fits("output_swe_show_v1")["phases"]
    assert [each["each_unit"] for each in phases] == [False, True, False]


def test_show_of_a_phase_says_what_its_contract_says(shop):
    lines = shop.run("swe", "show", "check", status=0).out.splitlines()
    assert lines[0] == "check (.system/swe/contracts/check.yaml:2): Compare the change with what was wanted."
    assert "may not: write tasks/{task-id}/build/**" in lines
    assert "rule unit-tests (command, BLOCKER): all tests of a unit have to pass" in lines
    (phase,) = shop.run("swe", "show", "check", "--json", status=0).fits("output_swe_show_v1")["phases"]
    assert phase["on_rollback"] == "pass_on"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("show", "chekc"), "has no phase 'chekc'; did you mean \"check\"?"),
        (("show", "--pipeline", "smal"), "there is no pipeline 'smal'; did you mean \"small\"?"),
        (("context", "task-1", "biuld"), 'did you mean "build"?'),
        (("context", "task-2", "outline"), "tasks/task-2/META.yaml"),
        (("context", "../task-1", "outline"), "is no name for {task-id}"),
        (("context", "task-1", "build"), "name a unit with --unit; units: unit-001, unit-002"),
        (("context", "task-1", "build", "--unit", "unit-003"), "there is no unit 'unit-003'; units: unit-001"),
        (("context", "task-1", "check", "--unit", "unit-001"), "works on no unit; leave --unit out"),
        (("context", "task-1", "check", "--text", "--json"), "leave --json out"),
    ],
)
def test_wrong_argument_is_one_clear_error(shop, args, why):
    ran = shop.run("swe", *args)
    assert ran.status not in (0, 70)
    assert why in ran.err
    assert "Traceback" not in ran.err


# --- lint -------------------------------------------------------------------------------------------------------------


def test_lint_counts_the_files_and_notes_what_nothing_names(shop):
    (shop.path / S / "schemas/more_v1.json").write_text('{"type": "object"}')
    replace_text(shop.path, f"{S}/contracts/outline.yaml", 'use: "swe/tests"', 'use: "swe/test"')
    lines = shop.run("swe", "lint", status=0).out.splitlines()
    assert lines == [
        f"{S}/schemas/more_v1.json:1: no contract names schemas/more_v1",
        f"{S}/contracts/outline.yaml:24:11: use: swe/test forbids no ability, since none is declared that fits it",
        "10 files of pipelines, no faults",
    ]
    answer = shop.run("swe", "lint", "--json", status=0).fits("output_swe_lint_v1")
    assert (answer["ok"], answer["files"], len(answer["notes"])) == (True, 10, 2)


def test_lint_reports_every_fault(shop):
    replace_text(shop.path, f"{S}/contracts/build.yaml", "severity: MAJOR", "severity: MAYOR")
    replace_text(shop.path, f"{S}/contracts/check.yaml", "t.exit_code", "t.exitcode")
    ran = shop.run("swe", "lint", status=1)
    assert f"{S}/contracts/build.yaml:16:15: severity: MAYOR" in ran.err
    assert f"{S}/contracts/check.yaml:23:38: cel: t has no exitcode" in ran.err
    answer = shop.run("swe", "lint", "--json", status=1).fits("output_swe_lint_v1")
    assert len(answer["faults"]) == 2


def test_lint_reports_what_only_compiling_finds(shop):
    replace_text(shop.path, ".system/deedbook.yaml", "{tool: echo}", "{tool: ehco}")
    assert 'did you mean "echo"?' in shop.run("swe", "lint", status=1).err


# --- context ----------------------------------------------------------------------------------------------------------


def test_context_shows_parts_tokens_and_digests(shop):
    (shop.path / "world/patterns").mkdir(parents=True)
    (shop.path / "world/patterns/retry.md").write_text("---\ntags: [http]\n---\nWait longer each time.\n")
    (shop.path / "world/patterns/sql.md").write_text("---\ntags: [sql]\n---\nUse parameters.\n")
    answer = shop.run("swe", "context", "task-1", "outline", "--json", status=0).fits("output_swe_context_v1")
    assert [(each["kind"], each["path"]) for each in answer["parts"]] == [
        ("assignment", "outline"),
        ("persona", "agents/outliner/persona.md"),
        ("input", "tasks/task-1/META.yaml"),
        ("skill", "agents/outliner/skills/asking.md"),
        ("file", "world/patterns/retry.md"),
    ]
    assert answer["parts"][2]["digest"] == canonical.digest(META.encode())
    assert [(each["path"], each["reason"]) for each in answer["left_out"]] == [("world/patterns/sql.md", "tags")]
    lines = shop.run("swe", "context", "task-1", "outline", status=0).out.splitlines()
    assert lines[0] == f"{answer['tokens']} of 800 tokens (estimated)"
    assert lines[-1].startswith("left out (tags): world/patterns/sql.md, ")


def test_context_prints_the_text(shop):
    text = shop.run("swe", "context", "task-1", "build", "--unit", "unit-002", "--text", status=0).out
    assert text.startswith("# Phase build of task task-1, unit unit-002\n")
    assert '"id":"unit-002"' in text
    assert "# Skill: Tokens" in text
    assert "unit-001" not in text


def test_context_of_a_phase_that_would_be_blocked_says_why(shop):
    (shop.path / "tasks/task-1/build/units/unit-001/patch.diff").unlink()
    ran = shop.run("swe", "context", "task-1", "check", status=1)
    assert "missing input: patches; the phase would be blocked" in ran.out
    (shop.path / "tasks/task-1/META.yaml").write_text(META.replace("title: ", f"title: {'x' * 4000} "))
    ran = shop.run("swe", "context", "task-1", "outline", status=1)
    assert "over the budget without any optional part: the phase would be blocked" in ran.out


def test_context_reads_no_file_outside_of_the_contract(shop):
    text = shop.run("swe", "context", "task-1", "build", "--unit", "unit-001", "--text", status=0).out
    assert "LIMIT" not in text
    assert "Two units." not in text


def test_context_reads_through_no_link(shop):
    (shop.path / "tasks/task-1/outline/spec.md").unlink()
    (shop.path / "tasks/task-1/outline/spec.md").symlink_to("/etc/hostname")
    assert "missing input: spec" in shop.run("swe", "context", "task-1", "build", "--unit", "unit-001", status=1).out


@pytest.mark.parametrize("text", ["---\nunits: 3\n---\n", "---\nunits: [3]\n---\n", "---\nunits: [\n---\n"])
def test_context_of_a_damaged_list_of_units_names_none(shop, text):
    (shop.path / "tasks/task-1/outline/work.md").write_text(text)
    assert "units: none" in shop.run("swe", "context", "task-1", "build", status=2).err


def test_show_says_how_a_budget_grows(shop):
    replace_text(shop.path / ".system/swe", "contracts/check.yaml", "schema_version: v1", "schema_version: v2")
    replace_text(
        shop.path / ".system/swe", "contracts/check.yaml", "tokens: 2500",
        "tokens: 2500\ntokens_request: 9\ntokens_each_criterion: 8\ntokens_each_unit: {small: 7}",
    )  # fmt: skip
    said = "at most 2500 tokens and up to 9 for the request, 8 for each criterion, 7 for each small unit"
    assert said in shop.run("swe", "show", "check", status=0).out
