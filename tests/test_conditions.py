"""Conditions on single values: pointers, equality, globs, paths, ranges, and their laws."""

import posixpath
import re

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.pointers import MEMBER_POINTER
from deedbook.policy.conditions import (
    ABSENT,
    condition_tests,
    conjunction,
    glob_test,
    impossible,
    lookup,
    normal_path,
    too_large,
)

SEGMENTS = st.sampled_from(["a", "b", "src", "..", ".", "", "...", ".env", "é"])
PATHS = st.one_of(st.lists(SEGMENTS, max_size=6).map("/".join), st.text("a/.~\\:\n ", max_size=8), st.text(max_size=12))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab/.", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=5,
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5]) | st.text("ab", max_size=2)


def holds(condition, value, *, allows=False):
    test = conjunction(tuple(condition_tests(condition, allows=allows)))
    return test(value)


# --- pointers ---------------------------------------------------------------------------------------------------------

DOCUMENT = {"a": {"b": [10, {"c": 20}]}, "": 1, "a/b": 2, "m~n": 3, "~1": 4, "0": 5, "null": None}


@for_each(
    ("pointer", "value"),
    [
        ("/a/b/0", 10),
        ("/a/b/1/c", 20),
        ("/", 1),
        ("/a~1b", 2),
        ("/m~0n", 3),
        ("/~01", 4),
        ("/0", 5),
        ("/null", None),
        ("/a/b", [10, {"c": 20}]),
    ],
)
def test_pointer_finds_what_rfc_6901_says(pointer, value):
    assert lookup(pointer)(DOCUMENT) == value


@for_each("pointer", ["/x", "/a/x", "/a/b/2", "/a/b/-", "/a/b/00", "/a/b/-1", "/a/b/+0", "/a/b/0/x", "/a/b/\u0660"])
def test_pointer_to_nothing_is_absent(pointer):
    assert lookup(pointer)(DOCUMENT) is ABSENT


@pytest.mark.parametrize("pointer", ["", "a", "/a~", "/a~2", "a/b"])
def test_pointer_pattern_refuses_what_is_no_pointer(pointer):
    assert re.fullmatch(MEMBER_POINTER, pointer) is None


# --- equality and ranges ----------------------------------------------------------------------------------------------


@for_each(
    ("wanted", "value", "same"),
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (False, 0, False),
        (0, False, False),
        (1, 1.0, True),
        (1.5, 1.5, True),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        ("", "", True),
        ("", None, False),
        ("a", ["a"], False),
        ("a", {"a": 1}, False),
    ],
)
def test_equality_is_that_of_json_types(wanted, value, same):
    assert holds(wanted, value) is same
    assert holds({"equals": wanted}, value) is same
    assert holds({"in": [wanted]}, value) is same


@given(st.lists(SCALARS, min_size=1, max_size=5), JSON)
def test_equality_with_a_list_is_equality_with_one_of_it_in_any_order(wanted, value):
    one = any(holds(each, value) for each in wanted)
    assert holds(wanted, value) is one
    assert holds(wanted[::-1], value) is one
    assert holds({"in": wanted}, value) is one


@pytest.mark.parametrize("value", ["5", True, None, [5], ABSENT, float("nan")])
def test_range_holds_for_no_value_that_is_not_a_number(value):
    assert not holds({"min": 0, "max": 10}, value)


@pytest.mark.parametrize(
    ("value", "inside"), [(0, False), (1, True), (1.0, True), (2.5, True), (3, True), (3.01, False)]
)
def test_range_includes_both_ends(value, inside):
    assert holds({"min": 1, "max": 3}, value) is inside


@given(JSON)
def test_conditions_on_one_value_must_all_hold(value):
    parts = [{"in": ["a", "b", "a/b", 1]}, {"like": "a**"}, {"under": "a"}]
    together = {key: item for part in parts for key, item in part.items()}
    assert holds(together, value) is all(holds(part, value) for part in parts)


@for_each(
    "condition",
    [
        "a",
        None,
        True,
        0,
        [None, "a"],
        {"equals": None},
        {"in": [0]},
        {"under": "."},
        {"like": "**"},
        {"min": 0},
        {"max": 0},
    ],
)
def test_absent_argument_meets_no_condition(condition):
    assert not holds(condition, ABSENT)
    assert not holds(condition, ABSENT, allows=True)


# --- paths ------------------------------------------------------------------------------------------------------------


@for_each(
    ("path", "normal"),
    [
        ("a", "a"),
        ("a/b", "a/b"),
        ("a//b", "a/b"),
        ("a/./b/", "a/b"),
        ("./a", "a"),
        ("a/../b", "b"),
        ("a/b/../..", ""),
        (".", ""),
        ("./", ""),
        (".env", ".env"),
        ("...", "..."),
        ("a/..b", "a/..b"),
        ("a b/c", "a b/c"),
        ("a/b:c", "a/b:c"),
        ("é/ü", "é/ü"),
        ("*", "*"),
    ],
)
def test_normal_path_is_plain_posix_text(path, normal):
    assert normal_path(path) == normal


@for_each(
    "path",
    [
        "", "/", "/a", "//a", "..", "../a", "a/../..", "./..", "~", "~/a", "~root/a", "a\0", "a\x7f", "a\nb",
        "a\x1b", "a\x85b", "a\u2028b", "a\\b", "..\\a", "C:\\a", "C:/a", "c:a", "file:///etc/passwd", "http:a", " a",
        "a ", "a/../~/b", "./c:/d", "a /",
        "\u00a0a", "a\t", "\ud800", "a/\udfff", None, 1, True, b"a", ["a"], {"a": 1},
    ],
)  # fmt: skip
def test_normal_path_is_none_for_what_no_condition_may_hold_for(path):
    assert normal_path(path) is None


@given(PATHS)
def test_normal_path_agrees_with_posixpath_and_stays_inside(path):
    normal = normal_path(path)
    if normal is None:
        return
    assert not path.startswith("/")
    expected = posixpath.normpath(path)
    assert normal == ("" if expected == "." else expected)
    assert ".." not in normal.split("/")
    assert normal_path(normal) == (normal or None)


@given(PATHS, st.sampled_from(["src", "a", "a/b", "."]), st.booleans())
def test_under_never_holds_for_a_path_that_leaves_the_folder(path, folder, allows):
    if holds({"under": folder}, path, allows=allows):
        root = posixpath.normpath(posixpath.join("/root", folder))
        reached = posixpath.normpath(posixpath.join(root if folder == "." else "/root", path))
        assert reached == root or reached.startswith(root + "/")


@given(st.lists(st.sampled_from(["a", "b", "a.b"]), min_size=1, max_size=4).map("/".join))
def test_under_holds_for_every_plain_path_below(path):
    assert holds({"under": "src"}, f"src/{path}")
    assert holds({"under": ["x", "./src/"]}, f"./src//{path}")
    assert holds({"under": "."}, path)
    assert not holds({"under": "src"}, f"src{path}")


@given(st.lists(st.sampled_from(["src", "a", "a/b"]), min_size=1, max_size=3), PATHS)
def test_under_any_of_several_folders_is_under_one_of_them(folders, path):
    one = any(holds({"under": folder}, path) for folder in folders)
    assert holds({"under": folders}, path) is one
    assert holds({"under": folders[::-1]}, path) is one


# --- globs ------------------------------------------------------------------------------------------------------------


def reference(glob, text):
    """Match by the definition, character by character: slow, and written without a regular expression."""
    if not glob:
        return not text
    if glob.startswith("**"):
        rest = glob.lstrip("*")
        return any(reference(rest, text[cut:]) for cut in range(len(text) + 1))
    if glob[0] == "*":
        reach = text.find("/") if "/" in text else len(text)
        return any(reference(glob[1:], text[cut:]) for cut in range(reach + 1))
    return text[:1] == glob[0] and reference(glob[1:], text[1:])


def reference_of_folders(glob, text):
    """Match where ``**/`` at the start of a segment may also stand for nothing."""
    at = 0 if glob.startswith("**/") else glob.find("/**/") + 1
    if at == 0 and not glob.startswith("**/"):
        return reference(glob, text)
    head, tail = glob[:at], glob[at + 3 :]
    return reference_of_folders(head + tail, text) or reference(head + "**/" + tail, text)


@given(st.text("ab/*", min_size=1, max_size=7), st.text("ab/", max_size=8))
def test_glob_fits_exactly_what_its_definition_says(glob, text):
    if glob.count("**/") <= 1 and "***" not in glob:
        assert glob_test([glob])(text) is reference_of_folders(glob, text)


@for_each(
    ("glob", "text", "fits"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a", "ba", False),
        ("a*", "a", True),
        ("a*", "a\n", True),
        ("a", "a\n", False),
        ("*", "", True),
        ("*", "a/b", False),
        ("**", "a/b\nc", True),
        ("a/**", "a", False),
        ("a/**", "a/", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "axb", False),
        ("**/b", "b", True),
        ("**/b", "ab", False),
        ("x**/b", "xb", False),
        ("x**/b", "xa/b", True),
        ("a.b", "axb", False),
        ("[ab]", "a", False),
        ("a?", "ab", False),
        ("(a|b)*", "a", False),
        ("$^*", "$^.", True),
        ("*\\d", "1", False),
        ("é*", "éa", True),
        ("A*", "ab", False),
    ],
)
def test_glob_is_anchored_and_literal_but_for_stars(glob, text, fits):
    assert glob_test([glob])(text) is fits


@given(st.lists(st.text("ab/*", min_size=1, max_size=4), min_size=1, max_size=4), st.text("ab/", max_size=6))
def test_globs_fit_if_one_of_them_does_in_any_order(globs, text):
    one = any(glob_test([glob])(text) for glob in globs)
    assert glob_test(globs)(text) is one
    assert glob_test(globs[::-1])(text) is one


@for_each("value", [None, 1, True, ["a"], {"a": 1}, b"a", ABSENT, object()])
def test_globs_fit_nothing_but_text(value):
    assert not glob_test(["**"])(value)
    assert not glob_test(["a"])(value)


def test_glob_with_many_stars_is_linear_in_hostile_text():
    """With backtracking these would not end within the age of the universe."""
    fits = glob_test(["**a*a**a*a**a*b"])
    assert not fits("a" * 1_000_000)
    assert fits("a" * 1_000_000 + "b")


def test_globs_with_too_large_an_automaton_are_known_before_a_call():
    assert too_large([f"{'*x' * 3000}{n}" for n in range(40)])
    assert not too_large(["src/**", "**/*.py"])


# --- like -------------------------------------------------------------------------------------------------------------


@given(PATHS, st.sampled_from(["src/**", "**", "src/*", "a/**", "**/.env"]))
def test_like_that_allows_never_holds_for_dot_segments(text, glob):
    if holds({"like": glob}, text, allows=True):
        assert holds({"like": glob}, text)
        assert not {".", ".."} & set(text.split("/"))


@given(st.lists(SEGMENTS, max_size=6).map("/".join))
def test_like_that_guards_is_not_evaded_by_another_spelling_of_the_path(path):
    normal = normal_path(path)
    if normal and holds({"like": ["**/.env", "src/*"]}, normal):
        assert holds({"like": ["**/.env", "src/*"]}, path)


def test_like_reads_other_text_as_it_stands():
    assert holds({"like": "git log **"}, "git log ../x /y", allows=True)
    assert holds({"like": "/etc/*"}, "/etc/passwd")
    assert not holds({"like": "git log **"}, "git log", allows=True)


# --- what can never hold ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"present": False, "min": 1}, "present: false alone"),
        ({"min": 2, "max": 1}, "min is above max"),
        ({"under": "/etc"}, 'found "/etc"'),
        ({"under": ["src", "../x"]}, 'found "../x"'),
        ({"under": "src/*"}, "no globs"),
        ({"under": "~/x"}, "relative folders"),
        ({"like": "*x" * 60_000}, "too large"),
    ],
)
def test_impossible_condition_says_why(condition, said):
    assert said in " ".join(impossible(condition))


@pytest.mark.parametrize(
    "condition", [{"present": False}, {"min": 1, "max": 1}, {"under": ["src/", "."]}, {"like": "*"}, {"max": 1}]
)
def test_possible_condition_has_nothing_against_it(condition):
    assert list(impossible(condition)) == []
