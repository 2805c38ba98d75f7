"""An example workspace is opened: its cycle, policy and persona stand in the charter."""

import json

import pytest

from deedbook.format.errors import BindingError
from deedbook.kernel import open_kernel
from deedbook_flow_workflow.definition import Definition


def test_workflow_files_become_an_ability_a_policy_and_a_skill(place):
    with open_kernel(place("two-phases")) as kernel:
        charter = kernel.bindings.charter.document
    ability = charter["abilities"]["workflow/check"]
    assert (ability["kind"], ability["uses"]) == ("flow", ["review", "workflow-artifact"])
    assert ability["place"] == ".system/workflows/cycles/check.md:3"
    assert charter["policies"]["gate"]["rules"] == [".system/workflows/policies/gate.md:7"]
    assert charter["skills"]["reviewer-style"]["allowed"] == ["file-read"]
    assert charter["skills"]["reviewer-style"]["source"] == ".system/workflows/personas/reviewer/style.md"
    assert charter["workflows"]["cycles/check"]["place"] == ".system/workflows/cycles/check.md:3"


def test_settings_of_a_cycle_hold_everything_that_its_run_needs(place):
    with open_kernel(place("two-phases")) as kernel:
        settings = kernel.bindings.charter.document["abilities"]["workflow/check"]["settings"]
    definition = Definition.parse(settings)
    assert definition.as_settings() == settings
    assert [phase.next for phase in definition.phases.values()] == ["settle", None]
    assert definition.phases["look"].personas == ("reviewer-style",)
    assert definition.phases["settle"].output_schema == "learning_v1"
    assert definition.personas["reviewer-style"].writes == ("reports/**",)
    assert definition.artifacts["lesson"].folder == "lessons"
    assert set(definition.schemas) == {"review_aggregate_v1", "learning_v1"}
    assert (definition.cycle.max_generations, definition.cycle.max_phase_runs) == (2, 6)


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        (("cycle", "entry_phase"), "lok", "there is no phase 'lok'"),
        (("phases", "look", "next"), "setle", "there is no phase 'setle'"),
        (("phases", "look", "personas"), ["x"], "there is no persona 'x'"),
        (("phases", "settle", "artifact"), "leson", "there is no artifact 'leson'"),
        (("phases", "look", "flow"), "other", "there is no ability in uses 'other'"),
        (("schemas",), {"review_aggregate_v1": {}}, "there is no schema 'learning_v1'"),
    ],
)
def test_hand_written_settings_that_lead_nowhere_are_refused(place, part, value, why):
    root = place("two-phases")
    with open_kernel(root) as kernel:
        entry = kernel.bindings.charter.document["abilities"]["workflow/check"]
    settings = json.loads(json.dumps(entry["settings"]))
    inner = settings
    for key in part[:-1]:
        inner = inner[key]
    inner[part[-1]] = value
    ability = {"schema_version": "v1", "id": "own", "summary": "Own.", "handler": {"flow": "workflow"}}
    file = root / ".system/registry/high-level/own.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**ability, "with": settings, "uses": entry["uses"]}))
    with pytest.raises(BindingError) as caught:
        open_kernel(root)
    assert why in str(caught.value)
    assert all((each.place or "").startswith(".system/registry/high-level/own.yaml:1:") for each in caught.value.errors)
