"""A rule that can never hold is named wherever somebody would look for it."""

import pytest
from commandline import Place

SETTINGS = """
    schema_version: v1
    abilities:
      echo: {summary: Echo a text back., handler: {tool: echo}, routing_hints: {intents: [say]}}
    policies:
      baseline:
        kind: rules
        rules:
          - {match: {abilities: [ehco]}, then: allow}
          - {match: {abilities: [echo], args: {/txet: {present: true}}}, then: allow}
        default: deny
"""


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.system("deedbook.yaml", SETTINGS)
    return made


COMMANDS = {
    "call": (["call", "echo", "--args", '{"text": "hi"}'], 3),
    "explain": (["explain", "echo", "--args", '{"text": "hi"}'], 3),
    "lint": (["registry", "lint"], 0),
    "doctor": (["doctor"], 0),
    "policy list": (["policy", "list"], 0),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_rules_that_can_never_hold_are_named_with_what_was_meant(place, command):
    args, status = COMMANDS[command]
    ran = place.here(*args, status=status)
    said = ran.out + ran.err
    assert "rule 1" in said
    assert 'did you mean "echo"?' in said
    assert "rule 2" in said
    assert 'did you mean "text"?' in said
    assert ".system/deedbook.yaml:9" in said


def test_a_default_that_was_meant_is_what_explain_leads_to(place):
    place.configure(
        "- {match: {abilities: [ehco]}, then: allow}\n      - {match: {abilities: [echo], args: {/txet",
        "- {match: {abilities: [echo], args: {/text",
    )
    place.configure("{present: true}", "{equals: ho}")
    ran = place.here("explain", "echo", "--args", '{"text": "hi"}', status=3)
    assert ran.out.rstrip().endswith("above its default at .system/deedbook.yaml:10")


# --- rules that should deny or ask and guard nothing ------------------------------------------------------------------

NOWHERE = "rule 1 of policy baseline does not guard 'ehco': it is no ability of this workspace; did you mean \"echo\"?"


@pytest.fixture(params=["deny", "ask"])
def open_place(place, request):
    """Give a workspace whose default allows what a misspelt rule should have denied, or asked about."""
    place.configure(
        "- {match: {abilities: [ehco]}, then: allow}", f"- {{match: {{abilities: [ehco]}}, then: {request.param}}}"
    )
    place.configure("{/txet: {present: true}}", "{/text: {equals: ho}}")
    place.configure("default: deny", "default: allow")
    return place


def test_misspelt_rule_that_should_guard_is_an_error_of_lint_and_a_fault_of_doctor(open_place):
    ran = open_place.here("registry", "lint", status=1)
    assert ran.out.splitlines()[0] == f"error: .system/deedbook.yaml:9: {NOWHERE} [BINDING_INVALID]"
    assert open_place.here("registry", "lint", "--json", status=1).fits("output_registry_v1")["ok"] is False
    assert f"FAULT  policy     {NOWHERE}" in open_place.here("doctor", status=1).out


@pytest.mark.parametrize("command", [["call", "echo", "text=hi"], ["serve", "--check"]])
def test_misspelt_rule_that_should_guard_is_reported_at_every_start(open_place, command):
    for _ in range(2):
        assert f".system/deedbook.yaml:9: {NOWHERE}" in open_place.here(*command, status=0).err.splitlines()


def test_pattern_that_matches_nothing_is_reported_at_the_start_after_a_change(open_place):
    open_place.configure("[ehco]", "[ehco/*]")
    pattern = NOWHERE.replace("ehco", "ehco/*").replace("it is no", "it matches no").partition(";")[0]
    assert pattern in open_place.here("call", "echo", "text=hi", status=0).err
    assert pattern not in open_place.here("call", "echo", "text=hi", status=0).err
    assert f"note   policy     {pattern}" in open_place.here("doctor", status=0).out


def test_misspelt_name_beside_others_and_in_the_match_of_a_policy_is_an_error_too(open_place):
    open_place.configure("[ehco]", "[ehco, echo]")
    assert NOWHERE in open_place.here("registry", "lint", status=1).out
    open_place.configure("[ehco, echo]", "[echo]")
    open_place.configure("kind: rules", "kind: rules\n    match: {abilities: [echo, ecko]}")
    out = open_place.here("registry", "lint", status=1).out
    assert "policy baseline does not guard 'ecko': it is no ability of this workspace; did you mean" in out


def test_explain_names_a_misspelt_rule_also_where_the_default_allows(open_place):
    out = open_place.here("explain", "echo", "text=hi", status=0).out
    assert "it does not guard 'ehco': it is no ability of this workspace; did you mean \"echo\"?" in out


@pytest.mark.parametrize("names", ["[ehco/*]", "[model/premium]"])
def test_pattern_and_another_profiles_model_are_no_errors(place, names):
    place.configure("- {match: {abilities: [ehco]}, then: allow}", f"- {{match: {{abilities: {names}}}, then: deny}}")
    assert "error:" not in place.here("registry", "lint", status=0).out
