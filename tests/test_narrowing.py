"""What YAML says of arguments and results may allow less than the plugin, never more; what is proved is refused."""

from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.charter.instances import instances, unfold
from deedbook.charter.narrowing import widenings
from deedbook.format.schema import foreign, lint

PLUGIN = {
    "type": "object",
    "required": ["path", "count"],
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 100},
        "count": {"type": "integer", "minimum": 0, "maximum": 10},
        "mode": {"enum": ["fast", "slow"]},
        "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
        "about": {
            "type": "object",
            "properties": {"who": {"type": "string", "pattern": "^[a-z]+$"}},
            "additionalProperties": False,
        },
        "step": {"type": "number", "multipleOf": 5},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "link": {"$ref": "#/$defs/link"},
    },
    "additionalProperties": False,
    "$defs": {"link": {"type": "string", "maxLength": 20}},
}
ABOUT = "/properties/about"
WIDER = {
    "another type": ({"properties": {"path": {"type": "integer"}}}, "/properties/path/type"),
    "one more type": ({"properties": {"path": {"type": ["string", "null"]}}}, "/properties/path/type"),
    "fractions": ({"properties": {"count": {"type": "number"}}}, "/properties/count/type"),
    "one more option": ({"properties": {"mode": {"enum": ["fast", "idle"]}}}, "/properties/mode/enum"),
    "a constant of its own": ({"properties": {"mode": {"const": "idle"}}}, "/properties/mode/const"),
    "a constant out of range": ({"properties": {"count": {"const": 11}}}, "/properties/count/const"),
    "one required less": ({"required": ["path"]}, "/required"),
    "nothing required": ({"required": []}, "/required"),
    "open properties": ({"additionalProperties": True}, "/additionalProperties"),
    "an unknown property": ({"properties": {"pth": {"type": "string"}}}, "/properties/pth"),
    "a lower minimum": ({"properties": {"count": {"minimum": -5}}}, "/properties/count/minimum"),
    "a minimum just below": (
        {"properties": {"count": {"exclusiveMinimum": -1.5}}},
        "/properties/count/exclusiveMinimum",
    ),
    "a higher maximum": ({"properties": {"count": {"maximum": 11}}}, "/properties/count/maximum"),
    "a far maximum": ({"properties": {"count": {"maximum": 10**15}}}, "/properties/count/maximum"),
    "shorter text": ({"properties": {"path": {"minLength": 0}}}, "/properties/path/minLength"),
    "longer text": ({"properties": {"path": {"maxLength": 10**9}}}, "/properties/path/maxLength"),
    "another pattern": (
        {"properties": {"about": {"properties": {"who": {"pattern": "^[A-Z0-9]+$"}}}}},
        f"{ABOUT}/properties/who/pattern",
    ),
    "other items": ({"properties": {"names": {"items": {"type": "integer"}}}}, "/properties/names/items/type"),
    "more items": ({"properties": {"names": {"maxItems": 4}}}, "/properties/names/maxItems"),
    "fewer items": ({"properties": {"names": {"minItems": 0}}}, "/properties/names/minItems"),
    "repeated items": (
        {"properties": {"names": {"uniqueItems": False, "minItems": 2}}},
        "/properties/names/uniqueItems",
    ),
    "a property within": (
        {"properties": {"about": {"properties": {"whom": {"type": "string"}}}}},
        f"{ABOUT}/properties/whom",
    ),
    "open within": ({"properties": {"about": {"additionalProperties": True}}}, f"{ABOUT}/additionalProperties"),
    "a finer step": ({"properties": {"step": {"multipleOf": 2}}}, "/properties/step/multipleOf"),
    "a type outside alternatives": (
        {"properties": {"either": {"type": ["string", "integer"]}}},
        "/properties/either/type",
    ),
    "an alternative of its own": ({"anyOf": [{"type": "object"}, {"type": "string"}]}, "/anyOf/1/type"),
    "behind the plugin's reference": ({"properties": {"link": {"maxLength": 21}}}, "/properties/link/maxLength"),
    "behind its own reference": (
        {"properties": {"path": {"$ref": "#/$defs/p"}}, "$defs": {"p": {"type": "boolean"}}},
        "/properties/path/type",
    ),
}  # fmt: skip
NARROWER = {
    "nothing said": {},
    "what the plugin says": PLUGIN,
    "only words": {"description": "a path", "title": "x"},
    "only the type": {"type": "object"},
    "one more required": {"required": ["path", "count", "mode"]},
    "one option less": {"properties": {"mode": {"const": "slow"}}},
    "a tighter range": {"properties": {"count": {"minimum": 1, "maximum": 9}}},
    "a range said otherwise": {"properties": {"count": {"exclusiveMinimum": -1, "exclusiveMaximum": 11}}},
    "integers of numbers": {"properties": {"step": {"type": "integer"}}},
    "a multiple of the step": {"properties": {"step": {"multipleOf": 10}}},
    "shorter text": {"properties": {"path": {"maxLength": 10, "pattern": "^reports/"}}},
    "a pattern within the other": {"properties": {"about": {"properties": {"who": {"pattern": "^[ab]+$"}}}}},
    "fewer items": {"properties": {"names": {"maxItems": 2, "items": {"maxLength": 3}}}},
    "no further properties": {"properties": {"path": {}, "count": {}}, "additionalProperties": False},
    "one alternative": {"properties": {"either": {"type": "null"}}},
    "excluded values": {"properties": {"path": {"not": {"const": "x"}}}},
    "a condition": {"if": {"required": ["mode"]}, "then": {"required": ["names"]}},
    "a property that is never there": {"properties": {"mode": False}},
}


@for_each(("narrow", "place"), WIDER.values(), ids=WIDER)
def test_what_allows_more_is_found_with_its_place_and_a_witness(narrow, place):
    found = widenings(narrow, PLUGIN)
    assert [each.pointer for each in found] == [place]
    assert foreign(narrow, place="narrow").valid(found[0].witness)
    assert not foreign(PLUGIN, place="wide").valid(found[0].witness)
    assert "the plugin" in found[0].message


@for_each("narrow", NARROWER.values(), ids=NARROWER)
def test_what_allows_less_or_leaves_the_word_to_the_plugin_is_accepted(narrow):
    assert widenings(narrow, PLUGIN) == []


def test_each_place_is_told_once_and_all_places_are():
    narrow = {"required": ["path"], "properties": {"mode": {"enum": ["fast", 1, 2]}, "names": {"maxItems": 9}}}
    places = [each.pointer for each in widenings(narrow, PLUGIN)]
    assert sorted(places) == ["/properties/mode/enum", "/properties/names/maxItems", "/required"]


def test_plugin_that_takes_nothing_is_narrowed_by_nothing_else():
    wide = {"type": "object", "properties": {"a": False}}
    assert [each.pointer for each in widenings({"properties": {"a": {"type": "string"}}}, wide)] == ["/properties/a"]


def test_reference_that_leads_back_into_itself_ends():
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert widenings(tree, tree) == []
    wider = {"properties": {"next": {"properties": {"n": {"type": "string"}}}}}
    assert [each.pointer for each in widenings(wider, tree)] == ["/properties/next/properties/n/type"]


# --- laws -------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(-2, 4)
VALUES = st.one_of(st.none(), st.booleans(), SMALL, st.sampled_from(["", "a", "ab", "abc"]), st.just([]), st.just({}))
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])


def grown(inner):
    counts = st.integers(0, 3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=3, unique=True)),
            "properties": st.dictionaries(NAMES, inner, max_size=2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "minItems": counts,
            "maxItems": counts,
            "minimum": SMALL,
            "maximum": SMALL,
            "exclusiveMinimum": SMALL,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": counts,
            "maxLength": counts,
            "pattern": st.sampled_from(["^a", "b$", "^[a-z]*$", "c"]),
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    )


SCHEMAS = st.recursive(st.one_of(st.booleans(), st.just({})), grown, max_leaves=6).filter(lambda s: isinstance(s, dict))


@given(SCHEMAS, SCHEMAS)
def test_whatever_is_called_wider_has_a_value_that_shows_it(narrow, wide):
    for each in widenings(narrow, wide):
        assert foreign(narrow, place="narrow").valid(each.witness)
        assert not foreign(wide, place="wide").valid(each.witness)


@given(SCHEMAS)
def test_no_schema_is_wider_than_itself(schema):
    assert widenings(schema, schema) == []


@given(SCHEMAS)
def test_every_instance_fits_its_schema(schema):
    if not lint(schema):
        fits = foreign(schema, place="schema").valid
        assert all(map(fits, instances(unfold(schema))))
