"""The lint for schemas from outside: what it refuses and where, and how much work a schema may make."""

import json
from typing import Any

import jsonschema_rs
import pytest
from cases import for_each

from deedbook.format import lint, schema
from deedbook.format.errors import SchemaError
from deedbook.format.schema_cost import SchemaCost

DRAFT = "https://json-schema.org/draft/2020-12/schema"
IRREGULAR = "is no regular expression that runs in linear time (no look-around, no \\1)"


def found(document: Any) -> list[str]:
    """Return what the lint finds, as text."""
    return [str(violation) for violation in schema.lint(document)]


def refusal(document: Any) -> str:
    """Return with what *document* is refused."""
    with pytest.raises(SchemaError) as caught:
        schema.foreign(document, place="tool echo, takes")
    assert {error.code for error in caught.value.errors} == {"SCHEMA_REFUSED"}
    return str(caught.value)


@for_each(
    ("document", "expected"),
    [
        ({"requried": ["a"]}, '$.requried: unknown keyword "requried"; did you mean "required"?'),
        ({"properties": {"a": {"tpye": "string"}}},
         '$.properties.a.tpye: unknown keyword "tpye"; did you mean "type"?'),
        ({"frobnicate": 1}, '$.frobnicate: unknown keyword "frobnicate"'),
        ({"x-comment": 1}, '$.x-comment: unknown keyword "x-comment"; did you mean "$comment"?'),
        ({"$vocabulary": {}}, '$.$vocabulary: unknown keyword "$vocabulary"'),
        ({"definitions": {}}, '$.definitions: unknown keyword "definitions"; use $defs'),
        ({"items": [{"type": "string"}]}, "$.items: expected a schema"),
        ({"additionalItems": False},
         '$.additionalItems: unknown keyword "additionalItems"; use prefixItems with items'),
        ({"type": "strng"}, '$.type: unknown type "strng"; did you mean "string"?'),
        ({"type": ["string", "string"]}, "$.type: expected a type, or a list of different types"),
        ({"type": []}, "$.type: expected a type, or a list of different types"),
        ({"required": "name"}, "$.required: expected a list of different names"),
        ({"required": ["a", 1]}, "$.required: expected a list of different names"),
        ({"minLength": -1}, "$.minLength: expected a whole number from 0"),
        ({"maxItems": 1.5}, "$.maxItems: expected a whole number from 0"),
        ({"minimum": "0"}, "$.minimum: expected a number"),
        ({"maximum": True}, "$.maximum: expected a number"),
        ({"multipleOf": 0}, "$.multipleOf: expected a number above 0"),
        ({"uniqueItems": "yes"}, "$.uniqueItems: expected true or false"),
        ({"properties": []}, "$.properties: expected an object of schemas"),
        ({"properties": {"a": "string"}}, "$.properties.a: is no schema; expected an object, true or false"),
        ({"anyOf": []}, "$.anyOf: expected a list of at least one schema"),
        ({"allOf": [1]}, "$.allOf[0]: is no schema; expected an object, true or false"),
        ({"not": None}, "$.not: expected a schema"),
        ({"enum": "a"}, "$.enum: expected a list"),
        ({"dependentRequired": {"a": "b"}}, "$.dependentRequired: expected an object of name lists"),
        ({"description": 5}, "$.description: expected a string"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"},
         f'$.$schema: "http://json-schema.org/draft-07/schema#" is another dialect; expected "{DRAFT}"'),
        ({"items": {"$schema": "http://x.test/mine"}},
         f'$.items.$schema: "http://x.test/mine" is another dialect; expected "{DRAFT}"'),
        ({"$defs": {"a": {"$id": "http://x.test/a"}}},
         "$.$defs.a.$id: only the root of a document may have an $id; refer to parts by $ref #/$defs/…"),
        ({"type": "string", "format": "dat"}, '$.format: unknown format "dat"; did you mean "date"?'),
        ({"format": "date"},
         '$.format: needs "type": "string" beside it: a format says nothing about values of other types'),
        ({"type": "integer", "format": "date"},
         '$.format: needs "type": "string" beside it: a format says nothing about values of other types'),
        ({"pattern": "("}, f'$.pattern: pattern "(" {IRREGULAR}'),
        ({"patternProperties": {"(?=a)": True}}, f'$.patternProperties: pattern "(?=a)" {IRREGULAR}'),
        ({"$ref": "#/$defs/nme", "$defs": {"name": {}}},
         '$.$ref: "#/$defs/nme" leads to no schema; did you mean "/$defs/name"?'),
        ({"$ref": "#nme", "$defs": {"a": {"$anchor": "name"}}}, '$.$ref: "#nme" names no anchor; did you mean "name"?'),
        ({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}},
         '$.$defs.b.$anchor: anchor "n" stands twice in the document'),
        ({"$ref": "#"}, "$: a reference leads back to itself without going into the value"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_lint_names_the_place_and_what_was_expected(document: Any, expected: str) -> None:
    assert found(document) == [expected]
    assert expected in refusal(document)


def test_lint_finds_everything_at_once_and_foreign_says_where_the_schema_stands() -> None:
    document = {"tpye": "object", "properties": {"a": {"format": "x", "type": "string"}, "b": {"minimum": "1"}}}
    assert [violation.pointer for violation in schema.lint(document)] == [
        "/tpye",
        "/properties/a/format",
        "/properties/b/minimum",
    ]
    assert refusal(document).count("tool echo, takes: $.") == 3


@for_each(
    "document",
    [
        True,
        False,
        {},
        {"$schema": DRAFT},
        {"$schema": DRAFT + "#", "$id": "https://x.test/s", "$comment": "a", "title": "b", "description": "c"},
        {"properties": {"requried": {"type": "string"}}, "$defs": {"frobnicate": True}},
        {
            "const": {"requried": 1},
            "enum": [{"$ref": "http://x.test"}],
            "default": {"tpye": 1},
            "examples": [{"$id": 1}],
        },
        {"type": ["string", "null"], "format": "date-time"},
        {"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "string"}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here"}}},
        {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
        {"minItems": 2.0},
    ],
)
def test_lint_accepts_what_the_draft_and_the_rules_allow(document: Any) -> None:
    assert found(document) == []
    schema.foreign(document, place="x")


@pytest.mark.parametrize("document", [None, 5, "string", [], [{"type": "string"}]])
def test_lint_refuses_what_is_no_schema_at_all(document: Any) -> None:
    assert found(document) == ["$: is no schema; expected an object, true or false"]


SAMPLES = [None, True, 0, 1, -1, 1.5, "", "a", "#", "string", [], ["a"], ["a", "a"], [1], [{}], [True], {}, {"a": 1},
           {"a": {}}, {"a": True}, {"a": ["b"]}, {"a": "b"}, {"(": {}}]  # fmt: skip


@for_each("keyword", sorted(set(lint.KEYWORDS) - {"$schema"}))
def test_lint_is_at_least_as_strict_as_the_meta_schema_of_the_draft(keyword: str) -> None:
    answers = [(value, jsonschema_rs.meta.is_valid({"$schema": DRAFT, keyword: value})) for value in SAMPLES]
    assert all(fits for value, fits in answers if not schema.lint({keyword: value}))
    assert keyword in ("const", "default") or not all(fits for _, fits in answers), "the draft does not know it"


# --- effort -----------------------------------------------------------------------------------------------------------


def test_schema_cost_counts_each_use_of_a_definition() -> None:
    twice = {"$defs": {"a": {"items": {}}}, "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    assert SchemaCost({}).unfolded_size() == 1
    assert (
        SchemaCost({"properties": {"a": {"type": "string"}, "b": {"items": {"type": "string"}}}}).unfolded_size() == 4
    )
    assert SchemaCost(twice).unfolded_size() == 1 + 2 * (1 + 2)
    assert SchemaCost({"properties": {"a": {"$ref": "#"}}}).unfolded_size() == 3


def test_schema_cost_tells_how_deep_a_value_can_be_explained() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    twice = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
    assert SchemaCost({"items": {"type": "string"}}).depth_within(100) == 64
    assert SchemaCost(tree).depth_within(1_000) == 64
    assert 5 < SchemaCost(twice).depth_within(1_000) < 10


def test_faults_do_not_depend_on_how_equal_schemas_are_spelled() -> None:
    document = {"tpye": "object", "minLenght": 1}
    assert len(found(document)) == 2
    assert found(dict(reversed(document.items()))) == found(document)
    assert found({"minLength": 1.0}) == found({"minLength": 1}) == []
