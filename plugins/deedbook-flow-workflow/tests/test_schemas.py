"""The schemas of workflows: they do not change, and they require what seed 000 requires."""

from hashlib import sha256
from pathlib import Path

import pytest

from deedbook.format.schema import Schemas, data_folder

SCHEMAS = Schemas.load(data_folder("schemas"))
PINNED = dict(line.split()[::-1] for line in (Path(__file__).parent / "schemas.sha256").read_text().splitlines())
REQUIRED = {
    "cycle_v1": {"id", "phases", "entry_phase", "schema_version"},
    "phase_v1": {"id", "advance_signal", "schema_version"},
    "workflow_policy_v1": {"id", "kind", "rules", "schema_version"},
    "finding_v1": {"id", "reviewer", "severity", "autofix_class", "confidence", "title", "schema_version"},
    "review_aggregate_v1": {"findings", "suppressed", "pre_existing", "verdict", "schema_version"},
}
OPTIONAL = {
    "cycle_v1": {"exit_conditions", "loop_bounds", "policies"},
    "phase_v1": {"halt_signal", "agents_invoked", "input_schema", "output_schema", "policies"},
    "workflow_policy_v1": {"default"},
    "review_aggregate_v1": {"coverage", "p0_unresolved"},
}


@pytest.mark.parametrize("name", PINNED)
def test_released_schema_has_not_changed(name):
    """A released schema is frozen: what needs another form gets a new version."""
    assert sha256((data_folder("schemas") / name).read_bytes()).hexdigest() == PINNED[name]


@pytest.mark.parametrize("name", REQUIRED)
def test_schema_requires_what_the_seed_requires_and_knows_its_other_fields(name):
    document = SCHEMAS.document(name)
    assert set(document["required"]) == REQUIRED[name]
    assert OPTIONAL.get(name, set()) <= document["properties"].keys()


def test_finding_takes_the_values_of_the_seed_and_of_its_courses():
    fields = SCHEMAS.document("finding_v1")["properties"]
    assert fields["severity"]["enum"] == ["P0", "P1", "P2", "P3", "critical", "major", "minor", "info"]
    assert fields["confidence"]["enum"] == [0, 25, 50, 75, 100]
    assert fields["autofix_class"]["enum"] == ["safe_auto", "gated_auto", "manual", "advisory"]


def test_findings_hold_findings():
    """One schema may not refer to another, so the form of a finding stands in both."""
    single, several = SCHEMAS.document("finding_v1"), SCHEMAS.document("findings_v1")
    inner = several["properties"]["findings"]["items"]
    assert {key: inner[key] for key in ("type", "required", "properties", "additionalProperties")} == {
        key: single[key] for key in ("type", "required", "properties", "additionalProperties")
    }
