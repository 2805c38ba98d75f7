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
    assert ran.out.rstrip().endswith("to allow it, edit .system/deedbook.yaml:10")
