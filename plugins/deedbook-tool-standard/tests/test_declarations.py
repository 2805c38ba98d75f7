"""What the distribution offers, and that every tool declares itself strictly."""

import json
from importlib.metadata import entry_points
from pathlib import Path

import jsonschema_rs
import pytest

from deedbook.contract import HandlerSpec
from deedbook_tool_standard.writing import CLAIM, FileWrite

EFFECTS = {
    "echo": "none",
    "file-count": "read",
    "file-find": "read",
    "file-hash": "read",
    "file-list": "read",
    "file-read": "read",
    "file-search": "read",
    "file-write": "write",
}
IN_YAML = {"process": "read", "sequence": "none"}
"""Tools whose arguments and results stand in YAML; their effects are the least that YAML may say."""
OFFERED = {
    point.name: point
    for point in entry_points(group="deedbook.tools")
    if point.dist is not None and point.dist.name == "deedbook-tool-standard"
}
FROZEN_CLAIM = Path(__file__).parents[3] / "schemas/write_claim_v1.json"


def objects(schema):
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_distribution_offers_the_tools_of_its_page():
    assert set(OFFERED) == {*EFFECTS, *IN_YAML, "linter-findings"}


@pytest.mark.parametrize("name", IN_YAML)
def test_tool_spelled_out_in_yaml_checks_what_yaml_says(name):
    spec = OFFERED[name].load().spec
    assert spec.effects == IN_YAML[name]
    assert callable(spec.check)
    jsonschema_rs.meta.validate(spec.settings)
    assert not jsonschema_rs.is_valid(spec.settings, {"shell": "rm -rf /"})


@pytest.mark.parametrize("name", EFFECTS)
def test_tool_declares_its_effects_and_no_settings(name):
    spec = OFFERED[name].load().spec
    assert isinstance(spec, HandlerSpec)
    assert spec.effects == EFFECTS[name]
    assert not jsonschema_rs.is_valid(spec.settings, {"anything": 1})


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("side", ["takes", "gives"])
def test_tool_schema_refuses_what_it_does_not_name(name, side):
    schema = getattr(OFFERED[name].load().spec, side)
    jsonschema_rs.meta.validate(schema)
    found = list(objects(schema))
    assert found
    assert all(each["additionalProperties"] is False for each in found)


@pytest.mark.parametrize("name", EFFECTS)
def test_tool_refuses_an_argument_it_does_not_know(name):
    takes = OFFERED[name].load().spec.takes
    known = {"text": "t", "path": "p", "paths": [], "pattern": "*", "who": "w", "why": "y", "expected_hash": ""}
    args = {key: value for key, value in known.items() if key in takes["properties"]}
    assert jsonschema_rs.is_valid(takes, args)
    assert not jsonschema_rs.is_valid(takes, {**args, "follow_links": True})


def test_file_write_asks_for_a_whole_claim():
    args = {"path": "p", "text": "t", "who": "w", "why": "y", "expected_hash": ""}
    assert jsonschema_rs.is_valid(FileWrite.spec.takes, args)
    for missing in args:
        assert not jsonschema_rs.is_valid(FileWrite.spec.takes, {k: v for k, v in args.items() if k != missing})


@pytest.mark.parametrize(
    "wrong",
    [{"who": ""}, {"why": ""}, {"expected_hash": "abc"}, {"expected_hash": "A" * 64}, {"schema_version": "v2"}],
)
def test_file_write_refuses_a_claim_of_the_wrong_shape(wrong):
    args = {"path": "p", "text": "t", "who": "w", "why": "y", "expected_hash": "", **wrong}
    assert not jsonschema_rs.is_valid(FileWrite.spec.takes, args)


def test_file_write_asks_for_what_the_frozen_claim_asks():
    if not FROZEN_CLAIM.exists():
        pytest.skip("the kernel's schemas are not beside this plugin")
    frozen = json.loads(FROZEN_CLAIM.read_text())

    def meaning(members):
        return {k: {name: v for name, v in member.items() if name != "description"} for k, member in members.items()}

    assert meaning(CLAIM) == meaning(frozen["properties"])
    assert set(frozen["required"]) == set(CLAIM)
