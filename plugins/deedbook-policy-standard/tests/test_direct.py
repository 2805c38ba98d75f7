"""Simple conditions without the engine say what the engine says, or nothing."""

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook_policy_standard.direct import compile_direct
from deedbook_policy_standard.expressions import Language, Unclear

READERS = {"a": lambda values: values["a"], "b": lambda values: values["b"]}
CONDITIONS = [
    "a.x == 'p'", "a.x != 'p'", "'p' == a.x", "a.x == b", "a.x != b", "a.x == 1", "a.x < 2", "a.x >= b", "a.x > 'a'",
    "a.x == true", "a.x == null", "a.x != null", "null == b", "a.x", "!a.x", "a.x in ['p', 'q']", "b in ['p']",
    "has(a.x)", "!has(a.x.y) && a.x == 'p'", "has(a.x) && a.x == 'p'", "has(a.x) || b == 1", "a.x == 'p' || b == 1",
    "size(a) == 1", "a.x.size() > 1", "size(a.x) < 2", "a.x.startsWith('p')", "a.x.endsWith(b)", "a.x.contains('')",
    "a['x'] == 'p'", "a[b] == 'p'", "a.x.y == b", "b == 1 && a.x == 'p'", "!(a.x == 'p' && b == 1)", "a.x == a.x",
    "a.x + 1 == 2", "a.x - b < 3", "a.x.all(i, i == 'p')", "a.x.exists(i, i.y == 1)", "a.x.all(i, i > 0 && has(a.y))",
    "a.x.exists(a, a == b)", "b.all(i, i in ['p'])",
]  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "p", "q", "x", "pä", 1.0, 2.5, 2**63, -(2**70)]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyp"), inner, max_size=2),
    max_leaves=4,
)
LANGUAGE = Language(READERS, ("a",))
COMPILED = [LANGUAGE.compile(text) for text in CONDITIONS]


def by_engine(expression, values):
    try:
        return attrs.evolve(expression, direct=None).holds(LANGUAGE.view(values))
    except Unclear as problem:
        return str(problem)


@given(st.dictionaries(st.sampled_from("xyp"), VALUES, max_size=2), VALUES)
def test_both_agree_where_the_engine_can_hold_the_values(a, b):
    values = {"a": a, "b": b}
    for expression in COMPILED:
        answer = compile_direct(expression.tree)(values.__getitem__)
        if answer is not None:
            found = by_engine(expression, values)
            assert found is answer or (isinstance(found, str) and "range" in found), expression.text


@pytest.mark.parametrize("values", [{"a": {"x": "p"}, "b": 1}, {"a": {"x": "q"}, "b": 2}])
def test_what_is_simple_is_answered_without_the_engine(values):
    answered = [
        expression.text for expression in COMPILED if compile_direct(expression.tree)(values.__getitem__) is not None
    ]
    assert {"a.x == 'p'", "has(a.x) && a.x == 'p'", "a.x in ['p', 'q']", "size(a) == 1"} <= set(answered)


def test_comprehensions_over_short_lists_are_answered_without_the_engine():
    (condition,) = (each for each in COMPILED if each.text == "a.x.exists(i, i.y == 1)")
    direct = compile_direct(condition.tree)
    assert direct({"a": {"x": [{"y": 2}, {"y": 1}, {}]}, "b": 1}.__getitem__) is True
    assert direct({"a": {"x": [{"y": 2}] * 1_000}, "b": 1}.__getitem__) is False
    assert direct({"a": {"x": [{"y": 2}] * 1_001}, "b": 1}.__getitem__) is None
    assert direct({"a": {"x": [{}, {"y": 1}]}, "b": 1}.__getitem__) is None


@for_each("text", ["a.x * 2 == 2", "a.x.exists(i, a.x.exists(k, k == i))", "a.x.exists_one(i, i == 1)",
                   "a.x.all(i, k, k == 1)", "a.x.map(i, i) == [1]", "a.x == 1.5", "a.x < null", "a.x in b",
                   "a.x.matches('p')", "inCidr(b, '::/0')", "a.x == b'p'", "b ? true : false",
                   "a.x == [1]"])  # fmt: skip
def test_all_else_is_left_to_the_engine(text):
    assert compile_direct(LANGUAGE.compile(text).tree) is None
