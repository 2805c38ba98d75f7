"""Which tier a phase asks: rules in order, conditions on facts, and the fallback to a tier that the profile has."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Failed
from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_swe.learning.routing import RoutingPolicy, choose, find_faults

DOCUMENT: dict[str, Any] = {
    "schema_version": "v1",
    "id": "test",
    "ladder": ["cheap", "mid", "premium"],
    "phases": {
        "requirements": {
            "tier": "cheap",
            "rules": [
                {
                    "id": "domain",
                    "when": {"tags": ["legal", "medical"]},
                    "tier": "mid",
                    "reason": "an ambiguous domain",
                },
                {"id": "words", "when": {"mentions": ["bank account"]}, "tier": "mid", "reason": "money"},
            ],
        },
        "architecture": {
            "tier": "mid",
            "rules": [
                {"id": "new", "when": {"verified_pattern": False}, "tier": "premium", "reason": "no pattern matches"},
            ],
        },
        "implementation": {
            "tier": "mid",
            "rules": [
                {"id": "auth", "when": {"unit_touches": ["auth"]}, "tier": "premium", "reason": "it touches auth"},
                {"id": "simple", "when": {"unit_types": ["scaffold"]}, "tier": "cheap", "reason": "a scaffold"},
                {
                    "id": "stuck",
                    "when": {"unit_sizes": ["medium", "large"], "rollbacks": 2},
                    "tier": "premium",
                    "reason": "it was rolled back twice",
                },
            ],
        },
        "security": {
            "tier": "mid",
            "rules": [{"id": "owasp", "when": {"findings": ["owasp"]}, "tier": "premium", "reason": "a finding"}],
        },
    },
}
POLICY = RoutingPolicy.parse(DOCUMENT)
SCHEMA = Schemas.load(data_folder("schemas"))


@pytest.mark.parametrize(
    ("phase", "unit", "facts", "tier", "rule"),
    [
        ("requirements", None, {}, "cheap", "default"),
        ("requirements", None, {"tags": ["python", "Legal"]}, "mid", "domain"),
        ("requirements", None, {"text": "Send it to the bank  account."}, "mid", "words"),
        ("requirements", None, {"text": "embankment accounts"}, "cheap", "default"),
        ("architecture", None, {"verified_pattern": True}, "mid", "default"),
        ("architecture", None, {"verified_pattern": False}, "premium", "new"),
        ("architecture", None, {}, "mid", "default"),
        ("implementation", {"type": "scaffold", "touches": []}, {}, "cheap", "simple"),
        ("implementation", {"type": "scaffold", "touches": ["auth"]}, {}, "premium", "auth"),
        ("implementation", {"type": "module", "size": "large"}, {"rollbacks": 2}, "premium", "stuck"),
        ("implementation", {"type": "module", "size": "large"}, {"rollbacks": 1}, "mid", "default"),
        ("implementation", {"type": "module", "size": "tiny"}, {"rollbacks": 5}, "mid", "default"),
        ("implementation", None, {"touches": ["auth"]}, "premium", "auth"),
        ("implementation", {"touches": []}, {"touches": ["auth"]}, "mid", "default"),
        ("security", None, {"findings": []}, "mid", "default"),
        ("security", None, {"findings": ["owasp"]}, "premium", "owasp"),
        ("integration", None, {}, "own", "default"),
    ],
)
def test_first_rule_whose_conditions_hold_decides(phase, unit, facts, tier, rule):
    chosen = choose(POLICY, phase, unit, facts, default="own")
    assert (chosen.tier, chosen.rule) == (tier, rule)
    assert chosen.reason


@pytest.mark.parametrize(
    ("tiers", "tier"),
    [
        ({"cheap", "mid", "premium"}, "mid"),
        ({"cheap", "premium"}, "premium"),
        ({"cheap"}, "cheap"),
        ({"small", "tall"}, "small"),
    ],
)
def test_missing_tier_falls_back_and_says_so(tiers, tier):
    chosen = choose(POLICY, "security", None, {}, tiers=tiers)
    assert chosen.tier == tier
    assert chosen.rule == ("default" if tier == "mid" else "fallback:default")
    assert ("no tier mid" in chosen.reason) == (tier != "mid")


def test_profile_without_any_tier_is_an_error():
    with pytest.raises(Failed, match="no model"):
        choose(POLICY, "security", None, {}, tiers=())


def test_without_a_policy_the_contract_decides():
    assert choose(None, "security", None, {}, default="mid").tier == "mid"


@given(
    st.sampled_from([*DOCUMENT["phases"], "other"]),
    st.sets(st.sampled_from(["cheap", "mid", "premium", "odd"]), min_size=1),
    st.fixed_dictionaries({}, optional={"tags": st.just(["legal"]), "findings": st.just(["owasp"])}),
)
def test_chosen_tier_is_always_one_of_the_profile(phase, tiers, facts):
    assert choose(POLICY, phase, None, facts, default="mid", tiers=tiers).tier in tiers


def test_document_matches_its_schema():
    assert not SCHEMA.validator("routing_policy_v1").violations(DOCUMENT)
    assert not list(find_faults(DOCUMENT))


@pytest.mark.parametrize(
    ("path", "value", "at"),
    [
        (("phases", "security", "tier"), "huge", "/phases/security/tier"),
        (("phases", "security", "rules", 0, "tier"), "huge", "/phases/security/rules/0/tier"),
        (("phases", "implementation", "rules", 1, "id"), "auth", "/phases/implementation/rules/1/id"),
        (("phases", "security", "rules", 0, "id"), "default", "/phases/security/rules/0/id"),
        (("revision",), {"raise_at": 10, "lower_at": 10}, "/revision/lower_at"),
    ],
)
def test_faults_that_no_schema_expresses_are_found_with_their_place(path, value, at):
    document = deepcopy(DOCUMENT)
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert [pointer for pointer, _ in find_faults(document)] == [at]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda each: each.pop("ladder"),
        lambda each: each["phases"]["security"]["rules"][0].pop("reason"),
        lambda each: each["phases"]["security"]["rules"][0].update(when={}),
        lambda each: each["phases"]["security"]["rules"][0].update(when={"moon": "full"}),
        lambda each: each.update(revision={"raise_at": 0}),
    ],
)
def test_schema_refuses_what_is_no_policy(spoil):
    document = deepcopy(DOCUMENT)
    spoil(document)
    assert SCHEMA.validator("routing_policy_v1").violations(document)
