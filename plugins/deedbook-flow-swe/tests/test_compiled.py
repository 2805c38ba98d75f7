"""A pipeline is compiled into one definition, and a contract says what its agent may read, write and use."""

import json

import pytest
from pipelines import META, definition_of, registry_of, replace_text

from deedbook.contract import AbilityDeclaration
from deedbook.contract.flow import Limits
from deedbook.format.schema import Schemas, data_folder, foreign
from deedbook.kernel import open_kernel
from deedbook.policy.limits import FileList, compile_limits, limits_document
from deedbook.workspace.documents import parse_yaml
from deedbook_flow_swe.contract import fill
from deedbook_flow_swe.definition import SETTINGS, Definition, check_settings
from deedbook_flow_swe.rule_language import build_language

VALUES = {"task-id": "task-1", "unit-id": "unit-001", "project": "shop"}


def test_settings_hold_everything_that_a_run_needs(small):
    definition = definition_of(small)
    settings = definition.as_settings()
    assert foreign(SETTINGS, place="x").violations(settings) == ()
    assert Definition.parse(settings) == definition
    assert [each.phase for each in definition.phases] == ["outline", "build", "check"]
    assert set(definition.schemas) == {"note_v1", "report_v1", "spec_v1", "swe_task_v1", "unit_tests_v1", "work_v1"}
    assert [each.id for each in definition.skills["builder"]] == ["steps", "tokens"]
    assert definition.skills["builder"][1].mentions == ("token", "credential")
    assert definition.places["contracts/build"] == ".system/swe/contracts/build.yaml:2"
    assert definition.places["rules/build/names-its-unit"] == ".system/swe/contracts/build.yaml:18"
    assert definition.priority("MAJOR") == "P1"
    assert definition.priority("NONE") is None


def test_ability_of_a_pipeline_may_use_what_its_runner_and_its_agents_use(small):
    replace_text(small, ".system/agents/builder/.agent", "domain: code", "domain: code\ncapabilities: [swe/read]")
    registry, faults = registry_of(small)
    assert faults == []
    (ability,) = registry.abilities()
    assert (ability.id, ability.handler) == ("swe/small", {"flow": "phase-pipeline"})
    assert ability.uses == {"swe/read", "swe/write", "swe/tests"}
    assert ability.place == ".system/swe/pipeline.yaml:2"


def test_charter_has_an_entry_for_each_file(small):
    registry, _ = registry_of(small)
    entries = registry.entries(())
    assert {name.partition("/")[0] for name in entries} == {"pipelines", "contracts", "schemas"}
    assert entries["contracts/check"]["place"] == ".system/swe/contracts/check.yaml:2"


def test_rollback_goes_to_the_nearest_earlier_phase_that_mends(small):
    definition = definition_of(small)
    assert definition.previous("outline") is None
    assert definition.previous("check").phase == "build"
    replace_text(small, ".system/swe/contracts/build.yaml", "context_scope:", "on_rollback: pass_on\ncontext_scope:")
    assert definition_of(small).previous("check").phase == "outline"


def test_paths_begin_at_the_root_of_the_workspace(small):
    replace_text(small, ".system/swe/pipeline.yaml", "id: small", "id: small\ndata: work/swe")
    definition = definition_of(small)
    limits = definition.phase("outline").limits(VALUES)
    assert "work/swe/tasks/task-1/outline/*" in limits.writes
    assert all(each.removeprefix("!").startswith("work/swe/") for each in (*limits.reads, *limits.writes))
    assert definition.path("shared/queue.md") == "work/swe/shared/queue.md"


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def allowed(small):
    """Return a function that says whether the agent of a phase may read or write a path."""
    definition = definition_of(small)

    def ask(phase, access, path):
        limits = definition.phase(phase).limits(VALUES)
        compile_limits("x", limits_document(limits))
        return FileList.compile(tuple(getattr(limits, access))).fits(path)

    return ask


@pytest.mark.parametrize(
    ("phase", "access", "path", "answer"),
    [
        ("build", "writes", "tasks/task-1/build/units/unit-001/patch.diff", True),
        ("build", "writes", "tasks/task-1/build/units/unit-002/patch.diff", False),
        ("build", "writes", "tasks/task-2/build/units/unit-001/patch.diff", False),
        ("build", "writes", "tasks/task-1/build/READY.md", False),
        ("build", "writes", "tasks/task-1/build/BLOCKED.md", False),
        ("build", "writes", "tasks/task-1/outline/spec.md", False),
        ("check", "writes", "tasks/task-1/check/report.md", True),
        ("check", "writes", "tasks/task-1/check/unit-tests.json", False),
        ("check", "writes", "tasks/task-1/check/PASSED.md", False),
        ("check", "writes", "tasks/task-1/check/passed.md", False),
        ("build", "reads", "tasks/task-1/outline/spec.md", True),
        ("build", "reads", "tasks/task-1/outline/work.md", False),
        ("build", "reads", "tasks/task-1/build/units/unit-001/note.md", True),
        ("build", "reads", "tasks/task-1/build/units/unit-002/note.md", False),
        ("outline", "reads", "tasks/task-1/build/units/unit-001/note.md", False),
        ("outline", "reads", "agents/outliner/rewards.md", False),
    ],
)
def test_agent_reaches_only_the_files_of_its_contract(allowed, phase, access, path, answer):
    assert allowed(phase, access, path) is answer


def test_forbidden_abilities_are_part_of_the_limits(small):
    limits = definition_of(small).phase("outline").limits(VALUES)
    assert type(limits) is Limits
    assert limits.forbidden == ("swe/tests",)


@pytest.mark.parametrize("value", ["", "..", "a/b", "*", "a*", "x" * 65, "a\nb", None])
def test_value_of_a_placeholder_is_one_plain_name(value):
    with pytest.raises(ValueError, match="task-id"):
        fill("tasks/{task-id}/x", {} if value is None else {"task-id": value})


# --- conditions -------------------------------------------------------------------------------------------------------


def test_condition_sees_inputs_outputs_checks_task_and_unit(small):
    definition = definition_of(small)
    language = build_language(definition, definition.phase("check"))
    condition = language.compile(
        "checks.unit_tests.all(t, t.failed == 0) && inputs.patches[0].added == 1 && outputs.report.findings == []"
        " && task.project == 'shop' && unit == null"
    )
    values = {
        "checks": {"unit_tests": [{"failed": 0}]},
        "inputs": {"spec": {}, "patches": [{"added": 1}]},
        "outputs": {"report": {"findings": []}},
        "task": {"project": "shop"},
        "unit": None,
    }
    assert condition(values)
    assert not condition({**values, "checks": {"unit_tests": [{"failed": 1}]}})


def test_condition_of_a_phase_with_units_sees_the_unit(small):
    definition = definition_of(small)
    language = build_language(definition, definition.phase("build"))
    assert language.compile("unit.criteria.size() == 1")(
        {"inputs": {}, "outputs": {}, "checks": {}, "task": {}, "unit": {"criteria": ["AC-001"]}}
    )


# --- packs ------------------------------------------------------------------------------------------------------------


def test_skill_with_a_fault_is_reported_at_its_place(small):
    replace_text(small, ".system/agents/builder/skills/tokens.md", "types:", "typs:")
    _, faults = registry_of(small)
    assert [(place, message) for place, message in faults if 'did you mean "types"?' in message] == faults


def test_charter_has_the_compiled_pipeline(small):
    with open_kernel(small) as kernel:
        charter = kernel.bindings.charter.document
    ability = charter["abilities"]["swe/small"]
    assert (ability["kind"], ability["uses"]) == ("flow", ["swe/read", "swe/tests", "swe/write"])
    assert Definition.parse(ability["settings"]).as_settings() == ability["settings"]
    assert charter["swe"]["contracts/build"]["place"] == ".system/swe/contracts/build.yaml:2"


def test_change_of_a_skill_of_an_agent_is_a_change_of_the_charter(small):
    with open_kernel(small) as kernel:
        before = kernel.bindings.charter.digest
    replace_text(small, ".system/agents/builder/skills/steps.md", "Write the test first.", "Write the test last.")
    with open_kernel(small) as kernel:
        assert kernel.bindings.charter.digest != before


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda said: said["phases"].append(said["phases"][0]), "a phase appears twice"),
        (lambda said: said["units"].update(worked_by="biuld"), "there is no phase 'biuld'"),
        (lambda said: said["abilities"].update(read="swe/other"), "there is no ability in uses 'swe/other'"),
        (lambda said: said["schemas"].pop("note_v1"), "there is no schema 'note_v1'"),
    ],
)
def test_hand_written_settings_that_lead_nowhere_are_refused(small, edit, why):
    registry, _ = registry_of(small)
    (ability,) = registry.abilities()
    settings = json.loads(json.dumps(ability.settings))
    edit(settings)
    uses = dict.fromkeys(ability.uses, "read")
    declared = AbilityDeclaration(id="own", settings=settings, effects=None, schema_in=None, schema_out=None, uses=uses)
    flaws = check_settings(declared)
    assert [message for _, message in flaws] == [why]


def test_task_of_the_fixture_fits_the_schema_of_tasks():
    schemas = Schemas.load(data_folder("schemas"))
    assert schemas.validator("swe_task_v1").violations(parse_yaml(META.encode(), "META.yaml").value) == ()
