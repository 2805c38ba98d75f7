"""Hostile schemas and values: nothing is fetched, nothing runs, nothing hangs, and everything ends in a fault."""

import copy
import datetime as dt
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import lint, schema
from deedbook.format.errors import SchemaError
from deedbook.format.schema import Schemas, Violation

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "mood": {"enum": ["calm", "merry"]}, "age": {"type": "integer"}},
    "additionalProperties": False,
}


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


REMOTE = [
    "http://127.0.0.1:9/s", "https://x.test/s", "file:///etc/passwd", "ftp://x.test/s", "data:application/json,{}",
    "//x.test/s", "other.json", "urn:x", "", "/etc/passwd", DRAFT,
]  # fmt: skip


@for_each("keyword", ["$ref", "$dynamicRef"])
@for_each("target", REMOTE)
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


@for_each("document", MALFORMED, ids=repr)
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


PROBE = """
import sys

import fastjsonschema, jsonschema_rs
from deedbook.format import schema
schema.foreign({}, place="x"), schema._Compiled({})
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
