"""The roles' instructions and the schemas of their messages say the same, and the schemas keep to what is frozen."""

import json
import re

import pytest

from deedbook.format.schema import Schemas, data_folder
from deedbook_author.starter import STARTER

SCHEMAS = Schemas.load(data_folder("schemas"))
ROLES = {
    "lead": "lead_directive_v1",
    "planner": "plan_v1",
    "worker": "worker_report_v1",
    "reviewer": "review_result_v1",
    "advisor": "advice_v1",
    "scaffolder": "scaffold_v1",
}
FROZEN = {
    "completion_request_v1": {"messages", "model", "schema_version"},
    "completion_response_v1": {"text", "tool_calls", "finish_reason", "usage", "model", "schema_version"},
    "lead_directive_v1": {"intent", "constraints", "schema_version"},
    "plan_v1": {"steps", "risks", "needs_advisor", "schema_version"},
    "worker_report_v1": {"output", "steps_completed", "schema_version"},
    "review_result_v1": {"verdict", "feedback", "schema_version"},
}


def instructions(role):
    return (STARTER / "agents" / f"{role}.md").read_text(encoding="utf-8")


def example(role):
    (block,) = re.findall(r"```json\n(.*?)```", instructions(role), re.DOTALL)
    return json.loads(block)


@pytest.mark.parametrize(("role", "schema"), ROLES.items())
def test_instructions_name_their_schema_and_show_a_message_that_fits(role, schema):
    assert f"`{schema}`" in instructions(role)
    assert SCHEMAS.validator(schema).violations(example(role)) == ()


@pytest.mark.parametrize(("role", "schema"), ROLES.items())
def test_instructions_show_every_field_of_the_schema(role, schema):
    assert set(example(role)) == set(SCHEMAS.document(schema)["properties"])


@pytest.mark.parametrize("role", ROLES)
def test_instructions_demand_json_only(role):
    assert "nothing else" in instructions(role)


@pytest.mark.parametrize(("schema", "required"), FROZEN.items())
def test_frozen_schema_requires_exactly_its_fields(schema, required):
    assert set(SCHEMAS.document(schema)["required"]) == required


@pytest.mark.parametrize(("role", "schema"), ROLES.items())
def test_message_without_a_required_field_or_of_another_version_is_refused(role, schema):
    whole = example(role)
    for field in SCHEMAS.document(schema)["required"]:
        assert SCHEMAS.validator(schema).violations({key: value for key, value in whole.items() if key != field})
    assert SCHEMAS.validator(schema).violations({**whole, "schema_version": "v2"})


REQUEST = {"messages": [{"role": "user", "content": "hello"}], "model": "m", "schema_version": "v2"}
RESPONSE = {
    "text": "",
    "tool_calls": [{"id": "t1", "name": "echo", "args": {}}],
    "finish_reason": "tool_use",
    "usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.5},
    "model": "m",
    "schema_version": "v2",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"tools": [{"name": "echo"}, {"name": "read", "description": "d", "schema_in": {"type": "object"}}]},
        {"max_tokens": 1, "temperature": 0, "response_schema": "plan_v1", "role": "planner", "skill": None},
        {"skill": {"name": "greet", "description": "d", "metadata": {"deedbook": {}}}},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": RESPONSE["tool_calls"]}]},
        {"messages": [{"role": "tool", "content": "{}", "tool_call_id": "t1"}]},
    ],
)
def test_completion_request_v2_accepts(more):
    assert SCHEMAS.validator("completion_request_v2").violations({**REQUEST, **more}) == ()


@pytest.mark.parametrize(
    "more",
    [
        {"messages": []},
        {"messages": [{"role": "developer", "content": ""}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": "", "name": "ada"}]},
        {"tools": [{"description": "d"}]},
        {"tools": [{"name": "echo", "schema": {}}]},
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"skill": {"name": "greet"}},
        {"max_token": 5},
        {"schema_version": "v1"},
    ],
)
def test_completion_request_v2_refuses(more):
    assert SCHEMAS.validator("completion_request_v2").violations({**REQUEST, **more})


def test_completion_response_v2_accepts_every_reason_to_finish():
    for reason in ("stop", "tool_use", "max_tokens", "safety"):
        assert SCHEMAS.validator("completion_response_v2").valid({**RESPONSE, "finish_reason": reason})


@pytest.mark.parametrize(
    "more",
    [
        {"finish_reason": "length"},
        {"usage": {"input_tokens": -1, "output_tokens": 0}},
        {"usage": {"input_tokens": 0}},
        {"usage": {"input_tokens": 0, "output_tokens": 0.5}},
        {"usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": -1}},
        {"tool_calls": [{"id": "t1", "name": "echo"}]},
        {"tool_calls": [{"id": "", "name": "echo", "args": {}}]},
        {"tool_calls": [{"id": "t1", "name": "echo", "args": []}]},
        {"text": None},
        {"reasoning": "…"},
    ],
)
def test_completion_response_v2_refuses(more):
    assert SCHEMAS.validator("completion_response_v2").violations({**RESPONSE, **more})


def test_completions_v1_stay_open_to_what_was_valid_before():
    request = {**REQUEST, "messages": [{"role": "anyone", "content": "", "name": "ada"}], "schema_version": "v1"}
    response = {**RESPONSE, "usage": {"input_tokens": -1, "output_tokens": 0}, "schema_version": "v1"}
    assert SCHEMAS.validator("completion_request_v1").violations(request) == ()
    assert SCHEMAS.validator("completion_response_v1").violations(response) == ()
