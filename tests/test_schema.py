"""Schemas from outside: what the lint refuses and where, what is enforced, and hostile schemas and values."""

import copy
import datetime as dt
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fastjsonschema
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import effort, lint, schema
from deedbook.errors import DeedbookError, SchemaError
from deedbook.schema import Schemas, Violation

DRAFT = "https://json-schema.org/draft/2020-12/schema"
IRREGULAR = "is no regular expression that runs in linear time (no look-around, no \\1)"
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "mood": {"enum": ["calm", "merry"]}, "age": {"type": "integer"}},
    "additionalProperties": False,
}


def found(document: Any) -> list[str]:
    """Return what the lint finds, as text."""
    return [str(violation) for violation in schema.lint(document)]


def refusal(document: Any) -> str:
    """Return with what *document* is refused."""
    with pytest.raises(SchemaError) as caught:
        schema.foreign(document, place="tool echo, takes")
    assert {error.code for error in caught.value.errors} == {"SCHEMA_REFUSED"}
    return str(caught.value)


def wrong(document: Any, value: Any) -> list[str]:
    """Return what is wrong with *value*, as text."""
    return [str(violation) for violation in schema.foreign(document, place="x").violations(value)]


def nested(count: int, leaf: Any = 1) -> Any:
    """Return *leaf* in *count* lists."""
    for _ in range(count):
        leaf = [leaf]
    return leaf


# --- the lint ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("keyword", sorted(set(lint.KEYWORDS) - {"$schema"}))
def test_lint_is_at_least_as_strict_as_the_meta_schema_of_the_draft(keyword: str) -> None:
    answers = [(value, jsonschema_rs.meta.is_valid({"$schema": DRAFT, keyword: value})) for value in SAMPLES]
    assert all(fits for value, fits in answers if not schema.lint({keyword: value}))
    assert keyword in ("const", "default") or not all(fits for _, fits in answers), "the draft does not know it"


# --- what is enforced -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "good", "bad"),
    [
        ({"prefixItems": [{"type": "integer"}], "items": False}, [1], ["x"]),
        ({"unevaluatedProperties": False, "properties": {"a": True}}, {"a": 1}, {"b": 1}),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1], [1, 2]),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 2}, {"a": 1}),
        ({"contains": {"type": "integer"}, "minContains": 2}, [1, 2], [1]),
        ({"contains": {"type": "integer"}, "maxContains": 1}, [1, "a"], [1, 2]),
        ({"$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n", "type": "string"}}}, "a", 1),
        ({"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer"}}}, 5, 4),
        ({"properties": {"Foo": {"type": "string"}, "foo": {"type": "integer"}}}, {"Foo": "a", "foo": 1}, {"Foo": 1}),
        ({"properties": {"a-b": {"type": "string"}, "a_b": {"type": "integer"}}}, {"a-b": "a"}, {"a_b": "a"}),
        ({"$defs": {"Foo": {"type": "string"}, "foo": {"type": "integer"}}, "$ref": "#/$defs/foo"}, 1, "a"),
        ({"type": "string", "format": "date"}, "2024-02-29", "2023-02-29"),
        ({"type": "string", "format": "uri"}, "https://x.test/a", "not a uri"),
        ({"pattern": "^[a-z]+$"}, "abc", "abc\n"),
        ({"patternProperties": {"^a$": False}}, {"a\n": 1}, {"a": 1}),
        ({"pattern": "^\\d$"}, "3", "\u0663"),
        ({"pattern": "b"}, "abc", "ac"),
        ({"type": "integer"}, 1.0, 1.5),
        ({"type": "integer"}, 1, True),
        ({"const": 1}, 1.0, True),
        ({"enum": [False]}, False, 0),
        ({"maxLength": 1}, "\U0001f600", "ab"),
        ({"uniqueItems": True}, [1, True, "1"], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]),
    ],
    ids=lambda value: json.dumps(value)[:40],
)  # fmt: skip
def test_keyword_is_enforced_and_not_passed_over(document: Any, good: Any, bad: Any) -> None:
    validator = schema.foreign(document, place="x")
    assert validator.valid(good)
    assert validator.violations(good) == ()
    assert not validator.valid(bad)
    assert validator.violations(bad)


@pytest.mark.parametrize("name", sorted(lint.FORMATS))
def test_every_known_format_is_asserted(name: str) -> None:
    validator = schema.foreign({"type": ["string", "integer"], "format": name}, place="x")
    assert validator.valid(5)
    assert not validator.valid("\x00[(%zz {")


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "value", "expected"),
    [
        (PERSON, {"name": "Ada", "moood": 1}, ['$.moood: unknown key; did you mean "mood"?']),
        (PERSON, {}, ['$: the key "name" is missing']),
        (PERSON, {"name": "Ada", "mood": "mery"}, ['$.mood: is not one of "calm" or "merry"; did you mean "merry"?']),
        (PERSON, {"name": "Ada", "age": "7"}, ["$.age: expected integer, found string"]),
        (PERSON, {"name": None}, ["$.name: expected string, found null"]),
        (PERSON, [], ["$: expected object, found array"]),
        ({"type": ["string", "null"]}, 1.5, ["$: expected null or string, found number"]),
        (
            {"items": {"minimum": 3}},
            [3, 2, 1],
            ["$[1]: is less than the minimum of 3", "$[2]: is less than the minimum of 3"],
        ),
        ({"additionalProperties": {"const": "v1"}}, {"a b": 1}, ["$['a b']: \"v1\" was expected"]),
        ({"properties": {"a": False}}, {"a": 1}, ["$.a: nothing is allowed here"]),
        ({"not": {"type": "null"}}, None, ["$: fits what is excluded"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, None, ["$: fits none of the alternatives"]),
        ({"oneOf": [{"minimum": 1}, {"type": "integer"}]}, 5, ["$: fits more than one of the alternatives"]),
        ({"contains": {"const": 1}}, [2], ["$: has not the items that it must contain"]),
    ],
)
def test_violation_says_where_and_what_was_expected(document: Any, value: Any, expected: list[str]) -> None:
    assert wrong(document, value) == expected
    documents = Schemas({"a_v1": document})
    assert [str(violation) for violation in documents.validator("a_v1").violations(value)] == expected


def test_violation_of_a_union_follows_the_alternative_that_was_meant() -> None:
    step = {"properties": {"kind": {"const": "call"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}
    other = {"properties": {"kind": {"const": "wait"}}, "required": ["kind"]}
    document = {
        "type": "array",
        "items": {"oneOf": [{"type": "string"}, {"type": "object", **step}, {"type": "object", **other}]},
    }
    assert wrong(document, [{"kind": "call", "n": "1"}]) == ["$[0].n: expected integer, found string"]
    assert wrong(document, [{"kind": "call"}]) == ['$[0]: the key "n" is missing']
    assert wrong(document, [{"kind": "cal"}, 5]) == [
        "$[0]: fits none of the alternatives",
        "$[1]: fits none of the alternatives",
    ]


def test_violation_has_a_pointer_for_machines() -> None:
    (violation,) = schema.foreign({"additionalProperties": {"items": False}}, place="x").violations({"a/b~": [1]})
    assert violation == Violation("$['a/b~'][0]", "nothing is allowed here", "/a~1b~0/0")


@given(st.text(min_size=12, max_size=40).filter(lambda text: text not in json.dumps(PERSON)))
def test_violation_never_repeats_the_value(secret: str) -> None:
    document = {**PERSON, "anyOf": [{"required": ["zzz"]}], "not": {"required": ["name"]}}
    document["properties"] = {
        "name": {"maxLength": 1, "pattern": "^$", "const": 0, "type": "integer", "enum": [1], "not": {}},
        "mood": {"type": "string", "format": "date"},
    }
    messages = [
        violation.message
        for violation in schema.foreign(document, place="x").violations({"name": secret, "mood": secret})
    ]
    assert len(messages) >= 8
    assert not any(secret in message for message in messages)


def test_violations_are_at_most_fifty_and_each_is_short() -> None:
    found = schema.foreign({"items": {"enum": ["option " * 20] * 50}}, place="x").violations([1] * 1_000)
    assert len(found) == 50
    assert all(len(str(violation)) < 600 for violation in found)
    (long,) = schema.foreign(PERSON, place="x").violations({"name": "Ada", "k" * 1_000_000: 1})
    assert len(long.path) < 100


# --- hostile schemas and values ---------------------------------------------------------------------------------------

REMOTE = [
    "http://127.0.0.1:9/s", "https://x.test/s", "file:///etc/passwd", "ftp://x.test/s", "data:application/json,{}",
    "//x.test/s", "other.json", "urn:x", "", "/etc/passwd", DRAFT,
]  # fmt: skip


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("target", REMOTE)
def test_reference_out_of_the_document_is_refused_wherever_it_stands(target: str, keyword: str) -> None:
    for document in (
        {keyword: target},
        {"$defs": {"unused": {keyword: target}}},
        {"properties": {"a": {"items": {keyword: target}}}},
        {"$id": "http://127.0.0.1:9/", "not": {keyword: target}},
    ):
        assert "leads out of the document" in refusal(document)


def test_reference_inside_data_is_data_and_never_followed() -> None:
    hostile = {"$ref": "file:///etc/passwd"}
    document = {"const": hostile, "default": hostile, "examples": [hostile], "enum": [hostile]}
    validator = schema.foreign(document, place="x")
    assert validator.valid(hostile)
    assert not validator.valid({})
    assert "root:" not in str(validator.violations({}))


def test_reference_into_data_is_refused_since_the_lint_did_not_see_it() -> None:
    document = {"$ref": "#/examples/0", "examples": [{"requried": ["a"]}]}
    assert "leads to no schema" in refusal(document)
    assert "leads to no schema" in refusal(
        {"properties": {"a": {"const": {"type": "string"}}}, "$ref": "#/properties/a/const"}
    )


def test_identifier_of_a_known_document_does_not_change_what_references_mean() -> None:
    document = {"$id": DRAFT, "$ref": "#/$defs/anchorString", "$defs": {"anchorString": {"type": "integer"}}}
    assert schema.foreign(document, place="x").valid(5)
    assert not schema.foreign(document, place="x").valid("a")


def test_code_in_a_schema_is_text(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    code = f'"+__import__("pathlib").Path({str(sign)!r}).touch()+"'
    for text in (code, f"'{code}'", f"\n{code}\n", "{" + code + "}", '"""' + code):
        document = {
            "title": text,
            "properties": {text: {"const": text, "description": text}},
            "required": [text],
            "enum": [{text: text}],
            "$defs": {text: {}},
            "$comment": text,
        }
        schema.foreign(document, place="x").violations({text: 1})
        Schemas({"a_v1": document}).validator("a_v1").violations({text: 1})
    assert not sign.exists()


def test_patterns_run_in_linear_time() -> None:
    text = "a" * 200_000 + "!"
    for pattern in ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*a){10}b", "^([a-z]+)*$"):
        assert not schema.foreign({"pattern": pattern}, place="x").valid(text)
        assert not schema.foreign({"propertyNames": {"pattern": pattern}}, place="x").valid({text: 1})
    for name in sorted(lint.FORMATS):
        schema.foreign({"type": "string", "format": name}, place="x").valid(text + "@" + text)


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}", "\\p{L}{200}", "((a{100}){100}){100}", "(?=a)a", "(a)\\1", "a" * 70_000]
)
def test_pattern_that_grows_or_looks_around_is_refused(pattern: str) -> None:
    assert refusal({"pattern": pattern})


def test_patterns_are_at_most_200() -> None:
    assert "201 patterns; at most 200" in refusal({"properties": {f"p{i}": {"pattern": "a"} for i in range(201)}})


def test_numbers_that_json_has_not_are_refused_in_schemas_and_in_values() -> None:
    for number in (math.nan, math.inf, 2**60, 1e17):
        assert "is not JSON" in refusal({"maximum": number})
        assert wrong({"minimum": 0, "maximum": 10, "multipleOf": 0.5}, number)[0].startswith("$: cannot be validated")


def test_schema_that_asks_itself_about_the_same_value_is_refused() -> None:
    circles: list[Any] = [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"anyOf": [{"not": {"$ref": "#"}}, True]},
        {"$dynamicAnchor": "n", "if": {"$dynamicRef": "#n"}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
    ]
    assert {refusal(circle) for circle in circles} == {
        "tool echo, takes: $: a reference leads back to itself without going into the value"
    }


@pytest.mark.parametrize("keyword", ["not", "items", "contains", "additionalProperties", "if"])
def test_schemas_nested_more_than_16_deep_are_refused(keyword: str) -> None:
    document: Any = {"type": "string"}
    for _ in range(16):
        document = {keyword: document}
    schema.foreign(document, place="x")
    assert "nested more than 16 schemas deep" in refusal({keyword: document})
    for _ in range(100):
        document = {keyword: document}
    assert refusal(document)


def test_schema_of_more_than_5000_nodes_or_64_kibibytes_is_refused() -> None:
    assert "more than 5000 nodes" in refusal({"properties": {f"p{i}": {} for i in range(5_000)}})
    assert "more than 5000 nodes" in refusal({"enum": list(range(5_000))})
    assert "a schema has at most 65536" in refusal({"description": "x" * 65_536})
    assert "nodes" in refusal({"enum": [[0] * 1_000] * 1_000})


@pytest.mark.parametrize(
    "use",
    [
        lambda ref: {"allOf": [ref, {**ref, "minItems": 1}]},
        lambda ref: {"anyOf": [ref, {**ref, "minItems": 1}]},
        lambda ref: {"items": ref, "contains": ref},
        lambda ref: {"not": ref, "if": ref},
        lambda ref: {"properties": {"a": ref, "b": ref}},
        lambda ref: {"dependentSchemas": {"a": ref, "b": ref}},
    ],
)
def test_definitions_that_double_are_refused(use: Any) -> None:
    definitions = {f"d{index}": use({"$ref": f"#/$defs/d{index + 1}"}) for index in range(22)}
    document = {"$defs": {**definitions, "d22": {}}, "$ref": "#/$defs/d0"}
    assert len(json.dumps(document)) < 4_000
    assert "more than 20000 schemas" in refusal(document)
    schema.foreign({**document, "$ref": "#/$defs/d12"}, place="x")


def test_schema_that_recurses_twice_is_answered_at_any_depth() -> None:
    document = {
        "anyOf": [
            {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
            {"type": "array", "items": {"$ref": "#"}, "maxItems": 9},
        ]
    }
    validator = schema.foreign(document, place="x")
    assert not validator.valid(nested(60))
    assert [str(violation) for violation in validator.violations(nested(60))] == [
        "$: does not fit its schema; the value is too large or too deep to say where"
    ]
    assert validator.violations(nested(2)) == (Violation("$", "fits none of the alternatives"),)


def test_value_too_large_for_all_its_alternatives_is_refused_without_copies() -> None:
    document = {"anyOf": [{"required": [f"x{i}"]} for i in range(300)]}
    assert wrong(document, {"a": "y" * 1_000_000}) == [
        "$: does not fit its schema; the value is too large or too deep to say where"
    ]
    assert wrong(document, {"a": "y"}) == ["$: fits none of the alternatives"]


def test_value_that_is_deep_or_circular_is_a_violation() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (nested(65), nested(100_000), circle):
        assert wrong({"items": {"$ref": "#"}}, value)[0].startswith("$: cannot be validated: ")


@pytest.mark.parametrize("value", [b"a", {1: 2}, {"a": {3}}, object(), dt.date(2024, 1, 1), {"a": "\ud800"}, [nested]])
def test_value_that_is_no_json_is_a_violation_and_no_exception(value: Any) -> None:
    validator = schema.foreign({"properties": {"a": {"maxLength": 5}}, "items": {"type": "object"}}, place="x")
    assert str(validator.violations(value)[0]).startswith("$: cannot be validated: ")


def test_exception_inside_a_validator_is_a_violation() -> None:
    class Broken:
        def is_valid(self, value: Any) -> bool:
            raise BaseException("a panic")  # noqa: TRY002 - what a panic in the library is

        iter_errors = is_valid

    broken = schema._Interpreted(Broken(), True)  # type: ignore[arg-type]
    assert not broken.valid(1)
    assert broken.violations(1) == (Violation("$", "cannot be validated: BaseException"),)
    own = Schemas({"a_v1": {"multipleOf": 1e-308}}).validator("a_v1")
    assert not own.valid(1e308)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_interruption_is_passed_on(interruption: type[BaseException]) -> None:
    class Interrupted:
        def is_valid(self, value: Any) -> bool:
            raise interruption

        iter_errors = is_valid

    validator = schema._Interpreted(Interrupted(), True)  # type: ignore[arg-type]
    with pytest.raises(interruption):
        validator.valid(1)
    with pytest.raises(interruption):
        validator.violations(1)


MALFORMED = [
    {"type": 5}, {"type": {}}, {"properties": 1}, {"properties": {"a": 1}}, {"items": 1}, {"required": {"a": 1}},
    {"enum": 1}, {"pattern": 1}, {"pattern": "["}, {"patternProperties": {"(": {}}}, {"$ref": 1}, {"$defs": []},
    {"allOf": {}}, {"if": 1}, {"minimum": None}, {"maxLength": "1"}, {"format": 1}, {"$schema": 1}, {"$id": 1},
    {"dependentRequired": []}, {"const": b""}, {"$anchor": 1}, {"enum": {1: 2}}, {"patternProperties": None},
    {"items": {"additionalProperties": "no"}}, {"$ref": "#/%zz"}, {"$ref": "#/a/~2"}, {"$dynamicRef": None},
]  # fmt: skip


@pytest.mark.parametrize("document", MALFORMED, ids=repr)
def test_malformed_schema_is_refused_with_a_fault(document: Any) -> None:
    assert refusal(document)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["", "#", "#/a", "string", "date", "^a", DRAFT]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*lint.KEYWORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(ANYTHING, ANYTHING)
def test_any_schema_is_refused_with_a_fault_or_answers(document: Any, value: Any) -> None:
    before = json.dumps([document, value])
    try:
        validator = schema.foreign(document, place="x")
    except SchemaError:
        assert schema.lint(document)
    else:
        assert validator.valid(value) is (validator.violations(value) == ())
        assert jsonschema_rs.meta.is_valid({"$schema": DRAFT, **document} if isinstance(document, dict) else document)
    assert json.dumps([document, value]) == before


def test_what_became_of_the_document_afterwards_does_not_matter() -> None:
    document = copy.deepcopy(PERSON)
    validator = schema.foreign(document, place="x")
    document["properties"].clear()  # type: ignore[attr-defined]
    assert validator.violations({"name": "Ada", "moood": 1})[0].message == 'unknown key; did you mean "mood"?'


# --- effort -----------------------------------------------------------------------------------------------------------


def test_effort_counts_each_use_of_a_definition() -> None:
    twice = {"$defs": {"a": {"items": {}}}, "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    assert effort.Effort({}).unfolded() == 1
    assert effort.Effort({"properties": {"a": {"type": "string"}, "b": {"items": {"type": "string"}}}}).unfolded() == 4
    assert effort.Effort(twice).unfolded() == 1 + 2 * (1 + 2)
    assert effort.Effort({"properties": {"a": {"$ref": "#"}}}).unfolded() == 3


def test_effort_tells_how_deep_a_value_can_be_explained() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    twice = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
    assert effort.Effort({"items": {"type": "string"}}).depth_within(100) == 64
    assert effort.Effort(tree).depth_within(1_000) == 64
    assert 5 < effort.Effort(twice).depth_within(1_000) < 10


# --- the kernel's own -------------------------------------------------------------------------------------------------


def test_own_schema_with_a_constant_compiles_with_detailed_errors() -> None:
    document = {"properties": {"schema_version": {"const": "v1"}}}
    validator = Schemas({"a_v1": document}).validator("a_v1")
    assert validator.valid({"schema_version": "v1"})
    assert not validator.valid({"schema_version": "v2"})


def test_validation_never_changes_a_value_or_a_schema() -> None:
    document = {
        "properties": {"a": {"default": 1}, "b": {"$ref": "#/$defs/b"}},
        "items": {"properties": {"c": {"default": []}}},
        "$defs": {"b": {"type": "object", "properties": {"d": {"default": "x"}}}},
    }
    before = copy.deepcopy(document)
    values = [{"b": {}}, {}, [{}]]
    for validator in (Schemas({"a_v1": document}).validator("a_v1"), schema.foreign(document, place="x")):
        for value in values:
            assert validator.valid(value)
            assert validator.violations(value) == ()
    assert values == [{"b": {}}, {}, [{}]]
    assert document == before


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:9/s", "file:///etc/passwd", "data:application/json,{}", "gopher://x"]
)
def test_own_schema_is_never_fetched_either(target: str) -> None:
    with pytest.raises(ValueError, match="leads out of the document"):
        Schemas({"a_v1": {"$ref": target}}).validator("a_v1")


def test_own_schemas_are_found_by_id_and_an_unknown_one_names_the_nearest() -> None:
    schemas = Schemas.load(schema.data_folder("schemas"))
    assert "event_tool_call_v1" in schemas.ids()
    assert list(schemas.ids()) == sorted(schemas.ids())
    assert schemas.document("event_tool_call_v1")["type"] == "object"
    for ask in (schemas.validator, schemas.document):
        with pytest.raises(
            SchemaError, match='no schema has the id "event_tool_cal_v1"; did you mean "event_tool_call_v1"'
        ):
            ask("event_tool_cal_v1")


def test_own_schema_is_compiled_once_and_only_when_asked_for() -> None:
    schemas = Schemas({"good_v1": PERSON, "bad_v1": {"type": "nothing"}})
    assert schemas.validator("good_v1") is schemas.validator("good_v1")
    with pytest.raises(fastjsonschema.JsonSchemaDefinitionException):
        schemas.validator("bad_v1")


def test_own_schemas_are_shared_by_threads() -> None:
    schemas = Schemas({"a_v1": PERSON})
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(schemas.validator("a_v1"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, results))) == 1


def test_data_folder_is_found_and_a_missing_one_is_a_fault() -> None:
    assert (schema.data_folder("schemas") / "plan_v1.json").is_file()
    assert (schema.data_folder("system") / "deedbook.yaml").is_file()
    assert schema.data_folder(".system") == schema.data_folder("system")
    with pytest.raises(DeedbookError, match='the data folder "nothing" is missing; reinstall deedbook'):
        schema.data_folder("nothing")


def test_suggestion_is_made_only_for_a_near_name() -> None:
    assert schema.suggest("allwo", ["allow", "deny"]) == '; did you mean "allow"?'
    assert schema.suggest("zebra", ["allow", "deny"]) == ""
    assert schema.suggest("", []) == ""


PROBE = """
import sys
from deedbook import schema
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(("socket.", "open", "urllib")) else None)
for target in ("http://127.0.0.1:9/s", "file:///etc/passwd", "data:,1"):
    for make in (lambda it: schema.foreign(it, place="x"), schema._interpret, lambda it: schema._Compiled(it)):
        try:
            make({"$ref": target})
        except Exception:
            continue
        raise SystemExit(f"accepted {target}")
print(seen)
"""


def test_no_reference_makes_the_process_open_a_connection_or_a_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
