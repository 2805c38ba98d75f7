"""What servers list, made into abilities: older drafts said anew where that is certain, all else refused with why."""

import jsonschema_rs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import DeedbookError
from deedbook.format.schema import foreign
from deedbook_tool_mcp.listings import (
    UnsupportedTool,
    convert_tool,
    find_collisions,
    name_problem,
    result_schema,
    summary,
)

OBJECT = {"type": "object"}
OLD = "http://json-schema.org/draft-07/schema#"


def tool(takes=None, gives=None, **more):
    return {
        "name": "x",
        "inputSchema": {**OBJECT, **(takes or {})},
        **({"outputSchema": gives} if gives else {}),
        **more,
    }


def of(schema):
    """Return the one property `x` of what a tool takes, whose schema a server lists as *schema*."""
    found = convert_tool(tool({"properties": {"x": schema}}))
    return found.takes["properties"]["x"], found.notes


# --- what is said anew ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({"type": "string", "x-order": 3, "x-ui": {"widget": "area"}}, {"type": "string"}),
        ({"type": "string", "example": "a", "markdownDescription": "b", "enumNames": []}, {"type": "string"}),
        ({"type": "string", "format": "password"}, {"type": "string"}),
        ({"type": "integer", "format": "int64"}, {"type": "integer"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}),
        ({"anyOf": [{"type": "string", "x-a": 1}]}, {"anyOf": [{"type": "string"}]}),
        ({"type": "array", "items": {"type": "string", "x-a": 1}}, {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_annotations_that_nobody_checks_are_left_out_and_noted(said, meant):
    found, notes = of(said)
    assert found == meant
    assert bool(notes) is (said != meant)
    assert all(note.startswith("inputSchema.properties.x.") for note in notes)


def test_property_with_the_name_of_an_annotation_stays():
    properties = {"x-a": OBJECT, "example": OBJECT, "format": {"type": "string"}, "definitions": OBJECT, "$id": OBJECT}
    found = convert_tool(tool({"properties": properties}))
    assert found.takes["properties"] == properties
    assert found.notes == ()


def test_values_are_not_read_as_schemas():
    said = {"type": "object", "default": {"x-a": 1, "format": "?"}, "examples": [{"x-b": 1}], "enum": [{"x-c": 1}]}
    assert of(said) == (said, ())


def test_draft_07_is_said_in_2020_12():
    said = {
        "$schema": OLD,
        "definitions": {"a": {"type": "array", "items": [{"type": "string"}], "additionalItems": False}},
        "properties": {"p": {"$ref": "#/definitions/a", "description": "d", "minItems": 9}},
        "dependencies": {"p": ["q"], "r": {"required": ["s"]}},
    }
    found = convert_tool(tool(said))
    assert found.takes == {
        "type": "object",
        "$defs": {"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": False}},
        "properties": {"p": {"$ref": "#/$defs/a", "description": "d"}},
        "dependentRequired": {"p": ["q"]},
        "dependentSchemas": {"r": {"required": ["s"]}},
    }
    assert found.notes == ("inputSchema.properties.p.minItems stands beside $ref, where its draft ignores it",)


LEAF = st.sampled_from(
    [{"type": "string", "maxLength": 1}, {"type": "integer", "minimum": 1}, {"const": None}, {"enum": ["a", 1]}, True]
)
DRAFT_07 = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"type": "array", "items": [a], "additionalItems": b}, inner, inner),
        st.builds(lambda a: {"type": "array", "items": a}, inner),
        st.builds(lambda a, b: {"properties": {"a": a}, "dependencies": {"a": b}}, inner, inner),
        st.builds(lambda a: {"dependencies": {"a": ["b"]}, "additionalProperties": a}, inner),
        st.builds(lambda a: {"definitions": {"d": a}, "allOf": [{"$ref": "#/properties/x/definitions/d"}]}, inner),
        st.builds(lambda a, b: {"anyOf": [a, {"not": b}]}, inner, inner),
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.sampled_from([None, 0, 1, "", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=6,
)


@given(schema=DRAFT_07, value=VALUES)
def test_what_is_said_anew_accepts_what_the_older_draft_accepts(schema, value):
    schema = _at_root(schema)
    whole = {"$schema": OLD, **OBJECT, "properties": {"x": schema}}
    oracle = jsonschema_rs.Draft7Validator(whole)
    mine = foreign(convert_tool({"name": "x", "inputSchema": whole}).takes, place="x")
    assert mine.valid({"x": value}) is oracle.is_valid({"x": value})


def _at_root(schema):
    """Leave definitions where references find them: only those of the whole are followed."""
    if isinstance(schema, list):
        return [_at_root(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _at_root(value) for key, value in schema.items() if key != "definitions"}
    if "definitions" in schema:
        made["allOf"] = [_at_root(schema["definitions"]["d"])]
    return made


PLAIN = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.builds(lambda a, b: {"type": "array", "prefixItems": [a], "items": b}, inner, inner),
        st.builds(lambda a, b: {"properties": {"a": a, "x-b": b}, "required": ["a"]}, inner, inner),
        st.builds(lambda a, b: {"oneOf": [a, b], "unevaluatedProperties": False}, inner, inner),
    ),
    max_leaves=5,
)


@given(schema=PLAIN)
def test_schema_of_the_present_draft_stays_as_it_is(schema):
    assert of(schema) == (schema, ())


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    ("said", "why"),
    [
        ({"type": "string", "maxLenght": 3}, 'unknown keyword "maxLenght"; did you mean "maxLength"?'),
        ({"type": "string", "nullable": True}, 'unknown keyword "nullable"; use "type"'),
        ({"type": "string", "pattern": "(?=a)b"}, "no regular expression that runs in linear time"),
        ({"$ref": "https://example.org/x.json"}, "leads out of the document"),
        ({"$ref": "#/$defs/none"}, "leads to no schema"),
        ({"type": "strnig"}, 'unknown type "strnig"'),
        ({"type": "array", "items": [{"type": "string"}]}, "expected a schema"),
        ({"type": "integer", "maximum": 2**63 - 1}, "an integer beyond 2^53-1"),
    ],
)
def test_what_stays_unclear_refuses_the_tool_with_its_reason(said, why):
    with pytest.raises(DeedbookError, match=r"inputSchema") as caught:
        of(said)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "takes", [None, {"type": "string"}, {}, {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}]
)
def test_arguments_have_to_be_an_object_in_a_draft_that_is_known(takes):
    with pytest.raises(DeedbookError):
        convert_tool({"name": "x", "inputSchema": takes})


@for_each("name", ["", "_x", "a b", "ä", "../x", "a/", "a/b", "x" * 126, 7, None])
def test_name_that_is_no_part_of_an_id_is_refused(name):
    assert name_problem("git", name)


@pytest.mark.parametrize("name", ["git_status", "get-sum", "a.b", "7", "X"])
def test_name_that_is_part_of_an_id_stays_as_it_is(name):
    assert name_problem("git", name) is None


def test_names_that_differ_by_case_only_are_all_refused():
    found = find_collisions(["a", "A", "b", "c", "c"])
    assert set(found) == {"a", "A", "c"}
    assert found["a"] == "A and a would be one ability"


# --- results ----------------------------------------------------------------------------------------------------------


def test_references_of_an_output_schema_lead_where_they_did_before():
    gives = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}, "$ref": {"type": "string"}},
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}}
        },
        "default": {"$ref": "#/$defs/node"},
    }
    schema = result_schema(convert_tool(tool(gives=gives)).gives)
    valid = foreign(schema, place="x").valid
    assert valid({"content": [], "structuredContent": {"tree": {"next": {"v": 1}}}})
    assert not valid({"content": [], "structuredContent": {"tree": {"next": {"v": "1"}}}})
    assert not valid({"content": []})
    assert schema["properties"]["structuredContent"]["default"] == gives["default"]


def test_tool_without_an_output_schema_has_no_schema_of_its_own():
    assert result_schema(convert_tool(tool()).gives) is None


def test_summary_is_one_line_of_what_the_tool_says():
    assert summary("git", tool(description=" Shows\n\n the \t log. ")) == "Shows the log."
    assert summary("git", {"name": "x", "title": "The X"}) == "The X"
    assert summary("git", {"name": "x"}) == "the tool x of the MCP server git"
    assert len(summary("git", tool(description="y" * 5000))) == 1024


@pytest.mark.parametrize(
    ("listed", "place"),
    [
        ({"description": "Reads.\U000e0069\U000e0067"}, "/description"),
        ({"title": "a\u202eb"}, "/title"),
        (
            {"inputSchema": {"type": "object", "properties": {"x": {"description": "a\u200bb"}}}},
            "/inputSchema/properties/x",
        ),
        ({"annotations": {"title": "a\x1b[8mb"}}, "/annotations/title"),
    ],
)
def test_tool_with_a_hidden_character_is_not_offered(listed, place):
    with pytest.raises(UnsupportedTool) as refused:
        convert_tool({"name": "x", "inputSchema": {"type": "object"}, **listed})
    assert refused.value.why.startswith(place)
    assert "which a person does not see and a model reads" in refused.value.why
