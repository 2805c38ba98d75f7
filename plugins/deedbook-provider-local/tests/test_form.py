"""The narrowed form accepts only what the schema accepts, and bounds what the model writes."""

import json

import pytest

from deedbook_provider_local.form import ANSWER, CALL, LIST_LIMIT, TEXT_LIMIT, Form, narrow_schema, open_tools

ROLES = (
    "advice_v1",
    "lead_directive_v1",
    "plan_v1",
    "review_result_v1",
    "scaffold_v1",
    "worker_report_v1",
)
ECHO = {
    "name": "echo",
    "schema_in": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
}


@pytest.mark.parametrize("role", ROLES)
def test_narrowed_schema_of_a_role_has_only_required_members(kernel_schemas, role):
    """Every member that is left is required, and nothing else may be added."""
    schema = kernel_schemas.document(role)
    made = narrow_schema(schema)
    assert set(made["properties"]) == set(schema["required"]) == set(made["required"])
    assert made["additionalProperties"] is False


def test_narrowed_schema_limits_texts_and_lists_at_every_depth(kernel_schemas):
    """Limits of the schema itself hold where they are stricter, and a minimum is never above the maximum."""
    made = narrow_schema(kernel_schemas.document("plan_v1"))
    steps = made["properties"]["steps"]
    assert (steps["minItems"], steps["maxItems"]) == (1, LIST_LIMIT)
    assert steps["items"]["properties"]["description"]["maxLength"] == TEXT_LIMIT
    assert narrow_schema({"type": "string", "maxLength": 5})["maxLength"] == 5
    assert narrow_schema({"type": "array", "minItems": 9})["maxItems"] == 9
    assert "maxLength" not in narrow_schema({"type": "string", "enum": ["a"]})


def test_narrowed_schema_leaves_the_original_as_it_is(kernel_schemas):
    """The schema that the kernel checks by is not changed."""
    schema = kernel_schemas.document("plan_v1")
    before = json.dumps(schema)
    narrow_schema(schema)
    assert json.dumps(schema) == before


def test_form_with_tools_is_a_call_of_one_of_them_or_an_answer():
    """Each tool is one alternative with its own arguments, the answer is the last one."""
    call, answer = Form.of(None, [ECHO]).schema["anyOf"]
    assert call["properties"][CALL] == {"const": "echo"}
    assert call["properties"]["args"]["required"] == ["text"]
    assert answer["required"] == [ANSWER]


def test_tool_that_was_called_is_not_offered_again():
    """So small a model would repeat the call until its turns are spent."""
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "name": "echo", "args": {}}]}
    other = {"name": "other"}
    assert open_tools({"messages": [], "tools": [ECHO, other]}) == [ECHO, other]
    assert open_tools({"messages": [asked], "tools": [ECHO, other]}) == [other]
