"""Placeholders keep the type of what they name, or fail with what is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Failed
from deedbook_provider_rules.template import ROOM, Filling, references

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RESULTS = [{"text": "é", "list": [1, {"a/b": True, "c~d": None, "": 0}], "0": "zero"}, [7], "whole"]


def filling(**more):
    return Filling("rule 1", {"name": "Ada", "absent": None}, RESULTS, **more)


VALUES = {
    "${name}": "Ada",
    "Hello, ${name}${name}!": "Hello, AdaAda!",
    "${steps.1/text}": "é",
    "${steps.1/list}": [1, {"a/b": True, "c~d": None, "": 0}],
    "${steps.1/list/0}": 1,
    "${steps.1/list/1/a~1b}": True,
    "${steps.1/list/1/c~0d}": None,
    "${steps.1/list/1/}": 0,
    "${steps.1/0}": "zero",
    "${steps.2/0}": 7,
    "${steps.3}": "whole",
    "list: ${steps.1/list/1}": 'list: {"": 0, "a/b": true, "c~d": null}',
    "${steps.1/list/1/c~0d}.": "null.",
    "$${name}": "${name}",
    "a $${name} b ${name}": "a ${name} b Ada",
    "$name {name} $ ${": "$name {name} $ ${",
    "": "",
}


@pytest.mark.parametrize(("template", "value"), VALUES.items(), ids=VALUES)
def test_placeholder_is_filled(template, value):
    assert filling().fill(template) == value


def test_structures_are_filled_and_their_keys_are_not():
    template = {"${name}": ["${name}", 1, None, True, {"x": "${steps.2/0}"}]}
    assert filling().fill(template) == {"${name}": ["Ada", 1, None, True, {"x": 7}]}


def test_text_stays_text_even_for_a_single_placeholder():
    assert filling().text("${steps.2/0}") == "7"


MISSING = {
    "${absent}": "the request does not have it",
    "${steps.4}": "it has not run",
    "${steps.1/none}": "its result has nothing there",
    "${steps.2/1}": "its result has nothing there",
    "${steps.2/-1}": "its result has nothing there",
    "${steps.2/00}": "its result has nothing there",
    "${steps.2/-}": "its result has nothing there",
    "${steps.3/0}": "its result has nothing there",
    "x ${steps.1/list/9/a}": "its result has nothing there",
    "${steps.1/te~xt}": "'/te~xt' is no JSON pointer; write ~0 for a tilde and ~1 for a slash in a name",
}


@pytest.mark.parametrize(("template", "why"), MISSING.items(), ids=MISSING)
def test_placeholder_without_a_value_fails_with_the_reason(template, why):
    with pytest.raises(Failed) as caught:
        filling().fill(template)
    assert caught.value.code == "NO_RULE"
    assert str(caught.value).startswith("rule 1 needs ")
    assert "${" not in str(caught.value), "the message can stand in a reply"
    assert str(caught.value).endswith(f"but {why}")


def test_value_of_a_request_is_never_read_as_a_placeholder():
    assert Filling("rule 1", {"name": "${steps.1}"}, ["secret"]).fill("${name}, $${x}") == "${steps.1}, ${x}"


@pytest.mark.parametrize("template", ["${steps.1}${steps.1}", ["${steps.1}", "${steps.1}"], {"a": ["${steps.1}"] * 2}])
def test_filling_that_outgrows_its_room_fails(template):
    big = Filling("rule 1", {}, ["x" * (ROOM // 2 + 1)])
    with pytest.raises(Failed, match=f"rule 1 makes more than {ROOM} characters"):
        big.fill(template)


@given(JSON)
def test_whole_result_keeps_its_value(value):
    assert Filling("r", {}, [value]).fill("${steps.1}") == value


@given(JSON.filter(lambda value: "${" not in str(value)))
def test_template_without_placeholders_stays_as_it_is(value):
    assert list(references(value)) == []
    assert Filling("r", {}).fill(value) == value


@given(st.dictionaries(st.text(alphabet="ab/~0", max_size=4), st.integers(), min_size=1))
def test_every_key_can_be_pointed_at(result):
    for key, value in result.items():
        token = key.replace("~", "~0").replace("/", "~1")
        assert Filling("r", {}, [result]).fill(f"${{steps.1/{token}}}") == value
