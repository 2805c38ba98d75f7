"""The kernel's own schemas keep to the subset in which fastjsonschema and jsonschema-rs agree, file by file."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import fastjsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deedbook.format import schema

DOCUMENTS = {path.stem: json.loads(path.read_bytes()) for path in sorted(schema.data_folder("schemas").glob("*.json"))}
SCHEMAS = schema.Schemas(DOCUMENTS)

NAMED = ("properties", "$defs")
ONE = ("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else")
MANY = ("allOf", "anyOf", "oneOf")
NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
COUNTS = ("Length", "Items", "Properties", "imum")
PLAIN = frozenset(
    {"$schema", "$id", "$ref", "type", "enum", "const", "required", "pattern", "uniqueItems"}
    | {f"{end}{what}" for end in ("min", "max") for what in COUNTS}
    | {"exclusiveMinimum", "exclusiveMaximum"}
)
# literals, escapes of punctuation, classes without $ or ECMAScript's letters, groups, alternatives, repetition
PATTERN = re.compile(
    r"""(?: [^\\\[\](){}*+?|^$] | \\[.\\/()\[\]{}*+?|^-] | \((?:\?:|(?!\?)) | \) | \| | [*+?] | \{[0-9]+(?:,[0-9]*)?\}
        | \[\^?(?:(?!--|&&|~~|\|\|)[^\\\[\]$^]|\\[nrt\\\]\[^-]|\\x[0-9a-f]{2})+\]
        | (?:(?<![^(|])|(?<=\?:)) \^ | \$ (?=\)|\||$) )*""",
    re.VERBOSE,
)


# --- the subset -------------------------------------------------------------------------------------------------------


def inexact(document: Any) -> list[str]:
    """Return what in *document* the two libraries might not understand in the same way."""
    return [why for part in parts(document) for why in _inexact(part, document)]


def parts(document: Any) -> Iterator[Any]:
    """Yield *document* and every schema in it, `true` and `false` too."""
    yield document
    if isinstance(document, dict):
        inner = [child for keyword in NAMED for child in document.get(keyword, {}).values()]
        inner += [document[keyword] for keyword in ONE if keyword in document]
        inner += [child for keyword in MANY for child in document.get(keyword, ())]
        for child in inner:
            yield from parts(child)


def _inexact(part: Any, document: Any) -> Iterator[str]:
    if not isinstance(part, dict):
        if not isinstance(part, bool):
            yield f"{part!r} is no schema"
        return
    yield from (f"keyword {keyword}" for keyword in sorted(set(part) - PLAIN - NOTES - {*NAMED, *ONE, *MANY}))
    if "$ref" in part:
        beside = set(part) - NOTES - {"$ref", *(("$defs", "$schema", "$id") if part is document else ())}
        yield from (f"{keyword} beside $ref" for keyword in sorted(beside))
        if part["$ref"] != "#" and part["$ref"].removeprefix("#/$defs/") not in document.get("$defs", {}):
            yield f"reference {part['$ref']}"
    if not PATTERN.fullmatch(part.get("pattern", "")):
        yield f"pattern {part['pattern']}"
    for keyword in NAMED:
        folded = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in part.get(keyword, {})]
        yield from (f"{name} twice in {keyword}" for name in sorted({n for n in folded if folded.count(n) > 1}))


def test_documents_stay_in_the_exact_subset() -> None:
    assert {name: found for name, document in DOCUMENTS.items() if (found := inexact(document))} == {}


def test_documents_pass_the_lint_for_foreign_schemas_too() -> None:
    assert {name: found for name, document in DOCUMENTS.items() if (found := schema.lint(document))} == {}


def test_documents_are_named_as_their_files_and_describe_themselves() -> None:
    for schema_id, document in DOCUMENTS.items():
        assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema", schema_id
        assert document.get("$id", schema_id) == schema_id
        assert re.fullmatch(r"[a-z][a-z0-9_]*_v[1-9][0-9]*", schema_id)
        assert document["description"], schema_id


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"prefixItems": [{"type": "integer"}]}, ["x"]),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ({"unevaluatedProperties": False}, {"a": 1}),
        ({"contains": {"type": "integer"}, "minContains": 2}, [1]),
        ({"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer"}}}, 1),
        ({"items": {"$ref": "#/$defs/n", "minimum": 5}, "$defs": {"n": {"type": "integer"}}}, [1]),
        ({"patternProperties": {"^a$": False}}, {"a\n": 1}),
        ({"pattern": "^\\d$"}, "\u0663"),
        ({"pattern": "^\\w$"}, "é"),
        ({"pattern": "^[^\\s]$"}, "\u0085"),
        ({"format": "date"}, "2024-13-01"),
        ({"multipleOf": 0.3}, 1e300),
    ],
)
def test_subset_leaves_out_what_the_libraries_answer_differently(document: Any, value: Any) -> None:
    assert inexact(document)
    fast = fastjsonschema.compile(copy.deepcopy(document), use_default=False)
    exact = jsonschema_rs.Draft202012Validator(document)
    assert _fits(fast, value) is not exact.is_valid(value)


@pytest.mark.parametrize(
    "pattern", ["(a)\\1", "(?=a)", "(?i)a", "a{,3}", "[[a]]", "\\bx", "a^b", "a$b", "[a$]", "\\Z", "\\p{L}"]
)
def test_subset_leaves_out_patterns_that_python_reads_otherwise(pattern: str) -> None:
    assert inexact({"pattern": pattern}) == [f"pattern {pattern}"]


@pytest.mark.parametrize("names", [("Foo", "foo"), ("a-b", "a_b"), ("ab", "a b")])
@pytest.mark.parametrize("keyword", NAMED)
def test_subset_leaves_out_names_that_fold_together(keyword: str, names: tuple[str, str]) -> None:
    assert len(inexact({keyword: {name: {"type": "string"} for name in names}})) == 1


# --- both libraries on the same values --------------------------------------------------------------------------------

JUNK = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.0, 1.5, 2**53 - 1, "", "a", "v1", " \n", "é", [], [1], {}, {"a": 1}]
)
NEAR = ["\n", "$", "\u0663", "\u00a0", "/", "~", "\U0001f600", "a" * 300]


def fitting(part: Any, document: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values that fit a schema of the subset, as far as its own keywords say."""
    if "$ref" in (part if isinstance(part, dict) else ()):
        return fitting(_target(part["$ref"], document), document, depth + 1)
    if not isinstance(part, dict) or depth > 9:
        return JUNK
    for keyword in ("anyOf", "oneOf"):
        if keyword in part:
            rest = {name: value for name, value in part.items() if name not in MANY}
            branches = [{**rest, **_resolved(branch, document)} for branch in part[keyword]]
            return st.one_of([fitting(branch, document, depth + 1) for branch in branches])
    if "const" in part or "enum" in part:
        return st.sampled_from(part["enum"] if "enum" in part else [part["const"]])
    kinds = part.get("type") or ("object" if "properties" in part else "string")
    return st.one_of([_typed(kind, part, document, depth) for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _resolved(branch: Any, document: Any) -> dict[str, Any]:
    while "$ref" in branch:
        branch = _target(branch["$ref"], document)
    return dict(branch)


def _target(reference: str, document: Any) -> Any:
    return document if reference == "#" else document["$defs"][reference.removeprefix("#/$defs/")]


def _typed(kind: str, part: Any, document: Any, depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case "object":
            return _objects(part, document, depth)
        case "array":
            least, inner = part.get("minItems", 0), fitting(part.get("items", True), document, depth + 1)
            unique = repr if part.get("uniqueItems") else None
            return st.lists(inner, min_size=least, max_size=min(part.get("maxItems", 3), least + 2), unique_by=unique)
        case "string":
            return _strings(part)
        case "integer" | "number":
            low, high = part.get("minimum", -3), part.get("maximum", 2**53 - 1)
            return st.sampled_from([low, low + 1, float(low), high])
        case "boolean":
            return st.booleans()
    return st.none()


def _strings(part: Any) -> st.SearchStrategy[str]:
    least, most = part.get("minLength", 0), part.get("maxLength", 200)
    if "pattern" in part:
        pattern = re.compile(part["pattern"].replace("$", r"\Z"))
        texts = st.from_regex(pattern, alphabet=st.characters(max_codepoint=0x2FFF, exclude_categories=["Cs"]))
        return texts.filter(lambda text: least <= len(text) <= most)
    return st.sampled_from(["x" * least, "x" * (least + 1), "\U0001f600" * most, "word " * (least + 1)]).map(
        lambda text: text[:most]
    )


def _objects(part: Any, document: Any, depth: int) -> st.SearchStrategy[Any]:
    known = {name: fitting(child, document, depth + 1) for name, child in part.get("properties", {}).items()}
    needed = {name: known.get(name, JUNK) for name in part.get("required", ())}
    made = st.fixed_dictionaries(needed, optional={name: known[name] for name in known if name not in needed})
    more = part.get("additionalProperties", True)
    if known or more is False:
        return made
    names = fitting({"type": "string", "minLength": 1, **part.get("propertyNames", {})}, document, depth + 1)
    return st.dictionaries(names, fitting(more, document, depth + 1), min_size=part.get("minProperties", 0), max_size=3)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in *value* with each of its keys."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(item)


@st.composite
def spoiled(draw: Any, part: Any, document: Any) -> Any:
    """Return a value that fits, changed in one place, so that it nearly fits."""
    root = [copy.deepcopy(draw(fitting(part, document)))]
    container, key = draw(st.sampled_from(list(places(root))))
    old = container[key]
    if isinstance(old, str) and draw(st.booleans()):
        container[key] = draw(
            st.sampled_from([old + near for near in NEAR] + [near + old for near in NEAR] + [old[:-1]])
        )
    elif isinstance(old, dict) and draw(st.booleans()):
        old[draw(st.sampled_from(["unforeseen", "a\n", "", "\u0663"]))] = draw(JUNK)
    elif isinstance(container, dict) and draw(st.booleans()):
        del container[key]
    elif isinstance(old, int | float) and not isinstance(old, bool) and draw(st.booleans()):
        container[key] = draw(st.sampled_from([max(old - 1, 1 - 2**53), min(old + 1, 2**53 - 1), old + 0.5, -old]))
    else:
        container[key] = draw(JUNK)
    return root[0]


def _fits(validator: Any, value: Any) -> bool:
    try:
        validator(value)
    except fastjsonschema.JsonSchemaException:
        return False
    return True


@pytest.mark.campaign(keep=4)
@pytest.mark.parametrize("schema_id", DOCUMENTS)
def test_both_libraries_agree_on_values_made_from_the_schema(schema_id: str) -> None:
    document = DOCUMENTS[schema_id]
    ours = SCHEMAS.validator(schema_id)
    foreign = schema.foreign(document, place=schema_id)
    seen: set[bool] = set()

    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(fitting(document, document), spoiled(document, document), spoiled(document, document)))
    def agree(value: Any) -> None:
        before = copy.deepcopy(value)
        fits = ours.valid(value)
        assert foreign.valid(value) is fits, value
        assert (ours.violations(value) == ()) is fits
        assert value == before
        seen.add(fits)

    agree()
    assert seen == {True, False}


@pytest.mark.campaign(keep=10)
@pytest.mark.parametrize("schema_id", DOCUMENTS)
def test_both_libraries_agree_on_values_of_every_type(schema_id: str) -> None:
    ours, foreign = SCHEMAS.validator(schema_id), schema.foreign(DOCUMENTS[schema_id], place=schema_id)
    for value in (None, True, 0, 1.0, "", "v1", [], [[]], {}, {"schema_version": "v1"}, {"\n": None}):
        assert ours.valid(value) is foreign.valid(value), value


def patterns() -> list[str]:
    """Return every pattern of the kernel's documents."""
    found = [part for document in DOCUMENTS.values() for part in parts(document) if isinstance(part, dict)]
    return sorted({part["pattern"] for part in found if "pattern" in part})


@pytest.mark.campaign(keep=6)
@pytest.mark.parametrize("pattern", patterns())
def test_both_engines_agree_on_texts_that_nearly_fit_and_come_to_an_end(pattern: str) -> None:
    run = fastjsonschema.compile({"pattern": pattern})
    exact = jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    single = [chr(code) for code in (*range(0x250), 0x663, 0x1680, 0x2028, 0x212A, 0xFEFF, 0xFFFD, 0x1F600)]
    long = [
        start + unit * 2_000 + end
        for unit in ("a", "a-", "/a", "~0", "a(", "0", " a", "a.")
        for start in ("", "/")
        for end in ("", "!", "\n")
    ]
    for text in [*single, *(text + text for text in single), *(f"a{text}" for text in single), *long]:
        assert _fits(run, text) is exact.is_valid(text), text[:40]
