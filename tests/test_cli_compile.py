"""`deedbook compile` in the starter: what it prints, its JSON, its diagram, and how it fails."""

import re

import pytest
from commandline import SCHEMAS, Place


def add_skill(place: Place, name: str, front: str = ""):
    text = (
        f"---\nname: {name}\ndescription: Does {name}.\nallowed-tools: [file-find, file-count]\n{front}---\n# {name}\n"
    )
    place.system(f"skills/{name}/SKILL.md", text)


INVENTORY = """\
metadata:
  deedbook:
    steps:
      - {id: find, description: Find the files, ability: file-find, args: {pattern: "*.txt"}, outputs: [paths]}
      - {id: count, description: Count lines, ability: file-count, inputs: {paths: {step: find, pointer: /paths}}}
      - {id: look, description: Look at them, depends_on: [find], optional: true}
"""


def test_skills_and_steps_are_shown_with_reasons_and_groups(place):
    add_skill(place, "inventory", INVENTORY)
    add_skill(place, "audit", "metadata: {requires: inventory}\n")
    add_skill(place, "ship")
    place.configure("files: {roots", "tool_aliases: {Docker: []}\nfiles: {roots")
    place.system(
        "skills/pack/SKILL.md", "---\nname: pack\ndescription: Packs.\nallowed-tools: [Docker, nothing]\n---\n#\n"
    )
    ran = place.here("compile", "audit and pack, then say hello", status=0)
    rows = [re.split(r" {2,}", line) for line in ran.out.splitlines()]
    assert [row[:3] for row in rows if row[0] == "included"] == [
        ["included", "inventory", 'required by "audit"'],
        ["included", "audit", 'the task names "audit"'],
        ["included", "greet", 'the task has "hello"'],
    ]
    (excluded,) = [row for row in rows if row[0] == "excluded"]
    assert excluded[1] == "pack"
    assert '"Docker" (' in excluded[2]
    assert '"nothing" (no ability or alias has this name' in excluded[2]
    assert ["not matched", "fix, ship, survey"] in rows
    groups = [(row[0], row[1]) for row in rows if row[0].startswith("group")]
    assert groups == [
        ("group 1", "inventory/find"), ("group 1", "greet"), ("group 2", "inventory/count"),
        ("group 2", "inventory/look"), ("group 3", "audit"),
    ]  # fmt: skip
    assert [
        "risk",
        'step "audit" is required and depends on the optional step "inventory/look", which may be skipped',
    ] in rows
    assert not (place.path / ".deedbook").exists()


def test_json_fits_its_schema_and_its_plan_fits_plan_v2(place):
    add_skill(place, "inventory", INVENTORY)
    answer = place.here("compile", "inventory", "--json", status=0).fits("output_compile_v1")
    assert (answer["ok"], answer["skills_unmatched"], answer["errors"]) == (True, ["fix", "greet", "survey"], [])
    assert SCHEMAS.validator("plan_v2").violations(answer["plan"]) == ()
    assert answer["plan"]["parallel_groups"] == [["inventory/find"], ["inventory/count", "inventory/look"]]


def test_mermaid_draws_groups_and_dependencies(place):
    add_skill(place, "inventory", INVENTORY)
    lines = place.here("compile", "inventory", "--mermaid", status=0).out.splitlines()
    assert lines[0] == "flowchart TD"
    assert '    s0["inventory/find<br/>ability file-find"]' in lines
    assert '    s2["inventory/look<br/>skill inventory<br/>optional"]' in lines
    assert [line for line in lines if "-->" in line] == ["  s0 --> s1", "  s0 --> s2"]


def test_hashing_is_chosen_by_its_option(place):
    assert place.here("compile", "greeting for Ada", status=1).err.endswith("[NO_SKILL]\n")
    assert "spelled like the task" in place.here("compile", "greeting for Ada", "--matcher", "hashing", status=0).out


def test_nothing_that_fits_is_one_error_with_its_code(place):
    ran = place.here("compile", "xyzzy", "--json", status=1)
    (error,) = ran.fits("output_compile_v1")["errors"]
    assert (error["code"], ran.err.count("\n")) == ("NO_SKILL", 1)
    assert place.here("compile", "xyzzy", "--mermaid", status=1).out == ""


def test_refused_plan_is_one_error_with_its_findings(place):
    add_skill(place, "audit", "metadata: {requires: [inventory]}\n")
    add_skill(place, "inventory", "metadata: {requires: [audit]}\n")
    ran = place.here("compile", "audit", "--json", status=1)
    answer = ran.fits("output_compile_v1")
    assert [each["code"] for each in answer["errors"]] == ["PLAN_REFUSED"]
    assert [(each["check"], sorted(each["steps"])) for each in answer["findings"]] == [
        ("dag_acyclic", ["audit", "inventory"])
    ]
    assert answer["plan"] is None
    assert "included  inventory" in place.here("compile", "audit", status=1).out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["compile"], "Missing argument"),
        (["compile", ""], "is empty"),
        (["compile", " \n"], "is empty"),
        (["compile", "say", "hello"], "put it in quotes"),
        (["compile", "hi", "--matcher", "llm"], "'llm' is not one of"),
        (["compile", "hi", "--json", "--mermaid"], "use either"),
        (["compile", "hi", "--meta-skill", ""], "it is empty"),
        (["compile", "\udcff"], "is not UTF-8"),
        (["compile", "x" * 1_048_577], "longer than"),
    ],
)
def test_wrong_usage_is_status_2_without_a_traceback(place, words, why):
    ran = place.here(*words, status=2)
    assert why in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("profile", [["--profile", "nothing"], []])
def test_faults_of_the_workspace_are_reported_as_elsewhere(place, profile):
    if not profile:
        place.system("registry/low-level/bad.yaml", "id: 5\n")
    ran = place.here("compile", "hi", *profile)
    assert ran.status in (1, 2)
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


def test_skill_that_cannot_be_read_is_reported_beside_the_plan(place):
    add_skill(place, "broken", "hooks: {}\n")
    ran = place.here("compile", "broken, say hello", "--json", status=0)
    assert "skill set aside: .system/skills/broken/SKILL.md:" in ran.err
    assert [each["name"] for each in ran.fits("output_compile_v1")["skills_included"]] == ["greet"]


def test_skill_with_some_commands_of_a_risky_ability_has_its_tag(place):
    place.configure("files: {roots", "tool_aliases: {Bash: {ability: wipe, command: /text}}\nfiles: {roots")
    place.system(
        "registry/low-level/wipe.yaml",
        """\
        schema_version: v1
        id: wipe
        summary: Wipe a thing away.
        handler: {tool: echo}
        tags: [destructive]
        """,
    )
    place.system("skills/clean/SKILL.md", "---\nname: clean\ndescription: Cleans.\nallowed-tools: Bash(rm:*)\n---\n#\n")
    (step,) = place.here("compile", "clean", "--json", status=0).json["plan"]["steps"]
    assert step["tags"] == ["destructive"]


def test_task_with_control_characters_and_markup_is_printed_safely(place):
    ran = place.here("compile", 'say hello \x1b[31m"]; click <b>', status=0)
    assert "\x1b" not in ran.out + ran.err
    assert "\x1b" not in place.here("compile", "say hello \x1b[31m", "--json", status=0).out
