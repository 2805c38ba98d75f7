"""Schemas in use: keywords are enforced, violations say what was expected, and the kernel's own are found by id."""

import copy
import json
import threading
from typing import Any

import fastjsonschema
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import lint, schema
from deedbook.format.errors import DeedbookError, SchemaError
from deedbook.format.schema import Schemas, Violation

PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "mood": {"enum": ["calm", "merry"]}, "age": {"type": "integer"}},
    "additionalProperties": False,
}


def wrong(document: Any, value: Any) -> list[str]:
    """Return what is wrong with *value*, as text."""
    return [str(violation) for violation in schema.foreign(document, place="x").violations(value)]


# --- what is enforced -------------------------------------------------------------------------------------------------


@for_each(
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


@for_each("name", sorted(lint.FORMATS))
def test_every_known_format_is_asserted(name: str) -> None:
    validator = schema.foreign({"type": ["string", "integer"], "format": name}, place="x")
    assert validator.valid(5)
    assert not validator.valid("\x00[(%zz {")


# --- words ------------------------------------------------------------------------------------------------------------


@for_each(
    ("document", "value", "expected"),
    [
        (PERSON, {"name": "Ada", "moood": 1}, ['$.moood: unknown key; did you mean "mood"?']),
        (PERSON, {}, ['$: the key "name" is missing']),
        (PERSON, {"name": "Ada", "mood": "mery"}, ['$.mood: is not one of "calm" or "merry"; did you mean "merry"?']),
        (PERSON, {"name": "Ada", "age": "7"}, ["$.age: expected integer, found string"]),
        (PERSON, {"name": None}, ["$.name: expected string, found null"]),
        (PERSON, [], ["$: expected object, found array"]),
        ({"properties": {"a": {"pattern": "^x", "title": "an x"}}}, {"a": "sk-1"}, ["$.a: expected an x"]),
        ({"properties": {"a": {"not": {"pattern": "^s"}, "title": "an x"}}}, {"a": "sk-1"}, ["$.a: expected an x"]),
        ({"propertyNames": {"not": {"enum": ["a"]}, "title": "no a"}}, {"a": 1}, ["$: expected no a"]),
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
    with pytest.raises(DeedbookError, match='the data folder "nothing" is missing; reinstall deedbook'):
        schema.data_folder("nothing")


def test_suggestion_is_made_only_for_a_near_name() -> None:
    assert schema.suggest("allwo", ["allow", "deny"]) == '; did you mean "allow"?'
    assert schema.suggest("zebra", ["allow", "deny"]) == ""
    assert schema.suggest("", []) == ""
