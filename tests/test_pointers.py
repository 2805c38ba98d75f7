"""JSON pointers (RFC 6901): built, split and followed; what is no pointer is refused."""

import re

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.pointers import (
    MEMBER_POINTER,
    POINTER,
    InvalidPointerError,
    escape,
    find_value,
    follow_reference,
    get_member,
    join_pointer,
    split_pointer,
    unescape,
)

NOTHING = object()
DOCUMENT = {
    "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8,
}  # fmt: skip
"""The document of RFC 6901 section 5."""
EXAMPLES = [
    ("", [], DOCUMENT),
    ("/foo", ["foo"], ["bar", "baz"]),
    ("/foo/0", ["foo", "0"], "bar"),
    ("/", [""], 0),
    ("/a~1b", ["a/b"], 1),
    ("/c%d", ["c%d"], 2),
    ("/e^f", ["e^f"], 3),
    ("/g|h", ["g|h"], 4),
    ("/i\\j", ["i\\j"], 5),
    ('/k"l', ['k"l'], 6),
    ("/ ", [" "], 7),
    ("/m~0n", ["m~n"], 8),
]
"""The pointers of RFC 6901 section 5, with the names that they lead through and the values that they lead to."""
INVALID = ["a", "a/b", " /a", "#/a", "~0", "~1a", "/~", "/a~", "/a~2", "/~~0", "/a/~b", "/~/a", "/~\u0660"]
NAMES = st.lists(st.text(max_size=6) | st.text("~/01", max_size=6) | st.integers(0, 12), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("~/01-a", max_size=3), inner, max_size=3),
    max_leaves=8,
)


# --- build and split --------------------------------------------------------------------------------------------------


@for_each(("pointer", "names", "value"), EXAMPLES)
def test_pointer_of_rfc_6901_leads_through_its_names_to_its_value(pointer, names, value):
    assert split_pointer(pointer) == names
    assert join_pointer(*names) == pointer
    assert find_value(DOCUMENT, pointer, NOTHING) == value


@given(NAMES)
def test_joined_names_are_split_into_the_same_names(names):
    pointer = join_pointer(*names)
    assert re.fullmatch(POINTER[1:-1], pointer, re.DOTALL)
    assert split_pointer(pointer) == [str(name) for name in names]


@given(st.text("~/01a\n", max_size=8) | st.text(max_size=8))
def test_split_takes_exactly_what_the_pattern_takes(text):
    taken = re.fullmatch(POINTER[1:-1], text) is not None
    assert (re.fullmatch(MEMBER_POINTER[1:-1], text) is not None) == (taken and text != "")
    if taken:
        assert join_pointer(*split_pointer(text)) == text
    else:
        with pytest.raises(InvalidPointerError):
            split_pointer(text)


@for_each("pointer", INVALID)
def test_invalid_pointer_is_refused_and_quoted(pointer):
    message = f"^{re.escape(repr(pointer))} is no JSON pointer"
    with pytest.raises(InvalidPointerError, match=message):
        split_pointer(pointer)
    with pytest.raises(InvalidPointerError, match=message):
        find_value({}, pointer, NOTHING)


@given(st.text("~/01a", max_size=8) | st.text(max_size=8))
def test_unescape_reverses_escape(name):
    token = escape(name)
    assert "/" not in token
    assert unescape(token) == name


@for_each(("token", "name"), [("~01", "~1"), ("~10", "/0"), ("~00", "~0"), ("~2", "~2"), ("~", "~")])
def test_escapes_are_read_once_from_the_left_and_an_invalid_one_stays(token, name):
    assert unescape(token) == name


# --- find values ------------------------------------------------------------------------------------------------------


@given(JSON)
def test_every_value_is_found_at_its_pointer(document):
    left = [((), document)]
    while left:
        names, value = left.pop()
        assert find_value(document, join_pointer(*names), NOTHING) is value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        left += [((*names, name), each) for name, each in inner]


@for_each("name", ["2", "-", "-1", "+0", "00", "01", "0.0", " 0", "0 ", "", "a", "\u0660", "1" * 5_000])
def test_index_is_decimal_and_within_the_list(name):
    assert get_member(["bar", "baz"], name, NOTHING) is NOTHING


@for_each("value", [None, True, 7, 1.5, "text"])
def test_scalar_has_no_members(value):
    assert get_member(value, "0", NOTHING) is NOTHING
    assert find_value({"a": value}, "/a/0", NOTHING) is NOTHING


def test_null_is_found_and_is_not_the_default():
    assert find_value({"a": [None]}, "/a/0", NOTHING) is None
    assert find_value({"a": [None]}, "/a/1", NOTHING) is NOTHING


# --- references of schemas --------------------------------------------------------------------------------------------


@for_each(
    ("reference", "value"),
    [
        ("#/$defs/a~1b", 1),
        ("#/$defs/m~0n/x", 2),
        ("#/$defs/none", None),
        ("#/$defs/none/deeper", None),
        ("other.json#/$defs/a~1b", None),
        (None, None),
    ],
)
def test_local_reference_leads_to_its_part_of_the_schema(reference, value):
    assert follow_reference({"$defs": {"a/b": 1, "m~n": {"x": 2}}}, reference) == value


def test_reference_to_the_root_is_the_schema_itself():
    schema = {"type": "object"}
    assert follow_reference(schema, "#") is schema
