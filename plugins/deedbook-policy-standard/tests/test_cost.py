"""The cost of a condition is bounded: by what it may do, and by how much it may see."""

import pytest
from cases import for_each

from deedbook_policy_standard.cost import degree, units
from deedbook_policy_standard.expressions import Invalid, Language, Unclear

READERS = {"l": lambda values: values["l"], "t": lambda values: values["t"]}


def compiled(text):
    language = Language(READERS, ())
    return language, language.compile(text)


@for_each(
    ("text", "expected"),
    [
        ("t == 'x'", 1),
        ("l.all(i, i.name != t && i.text.split(',').size() > 0)", 1),
        ("l.map(i, i.name + ': ' + i.text).size() > 0", 1),
        ("l.exists(i, l.exists(k, i == k))", 1),
        ("t.lowerAscii().replace('ab', 'x').split(',').join() == ''", 1),
        ("sets.contains(['a', 'b'], l)", 1),
        ("l.filter(i, i.n > 3).size() > 0", 1),
        ("l.sortBy(i, i.name)[0].name == 'a'", 2),
        ("sets.contains(l, l)", 2),
        ("l.all(i, i in l)", 2),
        ("l.map(i, t).size() > 0", 2),
        ("l.all(i, t.split(',').size() > i)", 2),
        ("t.replace('a', t) == ''", 2),
        ("l.map(i, [i, i]).flatten().size() > 0", 2),
        ("l.map(i, l.map(k, i + k)).size() > 0", 2),
        ("l.map(i, t).join(t) == ''", 3),
    ],
)
def test_the_degree_is_that_of_the_largest_product(text, expected):
    _, expression = compiled(text)
    assert degree(expression.tree) == expected


@for_each(
    ("text", "said"),
    [
        ("[t].map(i, i + i).map(i, i + i).map(i, i + i).map(i, i + i).size() > 0", "grows too fast"),
        ("t.replace('a', t).replace('a', t).replace('a', t) == ''", "grows too fast"),
        ("lists.range(101).size() > 0", "at most 100"),
        ("lists.range(l[0]).size() > 0", "at most 100"),
        ("{'a': 1}.transformMap(k, v, v + 1).size() > 0", "not offered"),
    ],
)
def test_what_cannot_be_bounded_is_refused(text, said):
    with pytest.raises(Invalid, match=said):
        compiled(text)


@pytest.mark.parametrize("text", ["l.map(i, t + string(i)).size() == 0", "sets.contains(l, l.filter(i, i > 0))"])
def test_work_of_a_higher_degree_needs_little_data(text):
    language, expression = compiled(text)
    small, large = ({"l": list(range(size)), "t": "x" * size} for size in (50, 5_000))
    assert expression.holds(language.view(small)) is text.startswith("sets")
    with pytest.raises(Unclear, match="too much work"):
        expression.holds(language.view({**large, "l": list(range(10_000))}))


def test_linear_work_may_see_anything():
    language, expression = compiled("t.split(',').size() == 1 && l.size() == 20000")
    assert expression.holds(language.view({"l": list(range(20_000)), "t": "x" * 100_000}))


def test_values_that_a_condition_does_not_read_do_not_count():
    language = Language({"v": lambda values: values}, ())
    condition = language.compile("v.some.all(i, i in v.a.b)")
    large = list(range(20_000))
    assert condition.holds(language.view({"some": [1], "a": {"b": [1], "c": large}, "more": large}))
    for seen in ({"some": [1], "a": {"b": large}}, {"some": [1], "a": [large]}, {"some": large, "a": {"b": [1]}}):
        with pytest.raises(Unclear, match="too much work"):
            condition.holds(language.view(seen))


@for_each(
    ("text", "expected"),
    [
        ("v.a.all(i, i.id in v.b)", {("v", "a", "[]", "id"), ("v", "b")}),
        ("v.a.all(i, true)", {("v", "a", "[]", "#")}),
        ("v.a.all(i, i in v.b)", {("v", "a", "[]"), ("v", "b")}),
        ("v.a.all(i, i.c.exists(k, k.id == v.d))", {("v", "a", "[]", "c", "[]", "id"), ("v", "d")}),
        ("v.a.map(i, i.c).flatten().all(k, k.id == v.d)", {("v", "a", "[]", "c"), ("v", "d")}),
        ("v.a.all(key, value, value.id == v.b)", {("v", "a", "[]", "id"), ("v", "b")}),
        ("v.a[0].b.all(i, i.id == 1)", {("v", "a")}),
    ],
)  # fmt: skip
def test_paths_are_what_a_condition_reads(text, expected):
    condition = Language({"v": lambda values: values}, ()).compile(text)
    assert set(condition.paths) == expected


def test_members_of_elements_that_a_condition_does_not_read_do_not_count():
    language = Language({"v": lambda values: values}, ())
    condition = language.compile("v.a.all(i, i.id in v.b)")
    rows = [{"id": number, "text": "x" * 1_000} for number in range(100)]
    assert condition.holds(language.view({"a": rows, "b": list(range(100))}))
    with pytest.raises(Unclear, match="too much work"):
        condition.holds(language.view({"a": [{"id": "x" * 100} for _ in range(100)], "b": []}))


def test_units_are_elements_and_characters():
    assert units({"ab": [1, None, "xyz"]}, 100) == 1 + 1 + 2 + 1 + 1 + 1 + 1 + 3
    assert 100 < units(list(range(10**6)), 100) <= 10**6 + 1
    assert units(["x" * 50] * 1000, 100) < 200
