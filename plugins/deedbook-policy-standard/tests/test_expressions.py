"""Conditions in CEL: only true holds, only false does not, and whatever is expensive or strange is refused."""

import sys
from contextlib import suppress

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Call, Principal
from deedbook_policy_standard.expressions import LONGEST, Invalid, Language, NoEngine, Unclear, nest_facts
from deedbook_policy_standard.syntax import place_of_member, tree

NOW = "2026-01-01T00:00:10.000Z"
WHO = Principal("ada", "cli", frozenset({"b", "a"}), "bob")


def call(args=None, **more):
    told = {"role": "worker", "skill": None, "facts": {"session.calls": {"echo": 2}, "context.state": None}, **more}
    return Call(
        "echo", "tool", args or {}, "read", frozenset({"y", "x"}), WHO, told["role"], told["skill"], "enforce", "s1",
        NOW, b"{}", told["facts"], frozenset({"text"}),
    )  # fmt: skip


def ask(text, args=None, **more):
    language = Language()
    return language.compile(text).holds(language.view(call(args, **more)))


def flaws(text):
    with pytest.raises(Invalid) as caught:
        Language().compile(text)
    return caught.value.flaws


# --- what holds -------------------------------------------------------------------------------------------------------


@for_each(
    ("text", "args", "held"),
    [
        ("args.n > 3", {"n": 4}, True),
        ("args.n > 3", {"n": 3.5}, True),
        ("args.n > 3", {"n": 3}, False),
        ("args.flag", {"flag": True}, True),
        ("args.flag", {"flag": False}, False),
        ("args.n == 1", {"n": True}, False),
        ("has(args.n) && args.n == 1", {}, False),
        ("'a-b' in args && args['a-b'] == null", {"a-b": None}, True),
        ("args.l.exists(i, i.name == 'ada')", {"l": [{"name": "bob"}, {"name": "ada"}]}, True),
        ("args.command.matches('^git (log|show)( |$)')", {"command": "git log -1"}, True),
        ("size(args.text) <= 3", {"text": "äöü"}, True),
        ("call.ability == 'echo' && call.kind == 'tool' && call.effects == 'read'", {}, True),
        ("call.tags == ['x', 'y'] && call.scopes == ['text'] && call.session == 's1'", {}, True),
        ("principal.id == 'ada' && principal.roles == ['a', 'b'] && principal.on_behalf_of == 'bob'", {}, True),
        ("principal.via == 'cli' && role == 'worker' && skill == null", {}, True),
        ("facts.session.calls['echo'] == 2 && facts.context.state == null", {}, True),
        ("timestamp(call.now) > timestamp('2026-01-01T00:00:09Z')", {}, True),
        ("args.missing == 1 || true", {}, True),
    ],
)
def test_a_condition_sees_the_call(text, args, held):
    assert ask(text, args) is held


@for_each(
    ("text", "args", "said"),
    [
        ("args.n == 1", {}, "Key not found"),
        ("args.n < 'x'", {"n": 1}, "No matching overloads"),
        ("args.n", {"n": 1}, "of type int"),
        ("args.n", {"n": "true"}, "of type string"),
        ("args.n", {"n": None}, "of type null"),
        ("args.n", {"n": [True]}, "of type list"),
        ("args.n + 1 > 0", {"n": 2**63 - 1}, "overflow"),
        ("args.n > 0", {"n": 2**70}, "out of range"),
        ("1 / args.n > 0", {"n": 0}, "zero"),
        ("timestamp(args.t) > timestamp(call.now)", {"t": "yesterday"}, "conversion failed"),
        ("args.x.y == 1", {"x": 3}, "INVALID_ARGUMENT"),
    ],
)
def test_what_is_neither_true_nor_false_is_unclear(text, args, said):
    with pytest.raises(Unclear, match=said):
        ask(text, args)


def test_a_value_that_is_no_error_is_not_quoted():
    with pytest.raises(Unclear) as caught:
        ask("args.token", {"token": "hunter2"})
    assert "hunter2" not in str(caught.value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_only_a_boolean_is_an_answer(value):
    language = Language()
    condition = language.compile("args.x")
    if type(value) is bool:
        assert condition.holds(language.view(call({"x": value}))) is value
    else:
        with pytest.raises(Unclear):
            condition.holds(language.view(call({"x": value})))


# --- what does not compile --------------------------------------------------------------------------------------------


@for_each(
    ("text", "at", "said"),
    [
        ("arg.n > 1", 0, 'did you mean "args"?'),
        ("args.n > 1 &&\n rolle == 'x'", 15, 'did you mean "role"?'),
        ("args.n >", 8, "Syntax error"),
        ("args.n.frob()", 7, "there is no function frob"),
        ("frob(args.n)", 0, "there is no function frob"),
        ("loop == 1", 0, "reserved identifier: loop"),
        ("package.x == 1", 0, "reserved identifier: package"),
        ("1 + 1", 0, "is of type int"),
        ("args", 0, "is of type map"),
        ("'a' == 1", 4, "no matching overload"),
        ("args + 1 == 2", 5, "no matching overload"),
        ("9223372036854775808 > 1", 0, "invalid int"),
        ("", 0, "Syntax error"),
        ("args.n == '\ud800'", 0, ""),
    ],
)
def test_a_wrong_expression_is_refused_with_the_place_in_it(text, at, said):
    found = flaws(text)
    assert said in found[0].message
    assert found[0].at == at


@for_each("word", ["as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
                                  "loop", "namespace", "package", "return", "var", "void", "while"])  # fmt: skip
def test_a_reserved_word_names_no_variable_but_may_name_a_member(word):
    assert flaws(f"{word} == 1")
    assert ask(f"args['{word}'] == 1", {word: 1})


# --- what is expensive ------------------------------------------------------------------------------------------------


def test_an_expression_has_a_length():
    padded = f"true{' ' * (LONGEST - 4)}"
    assert ask(padded) is True
    assert "at most 2000" in flaws(f"{padded} ")[0].message
    assert flaws("args.n == 1 || " * 700 + "true")


@pytest.mark.parametrize(
    "text", ["(" * 50 + "true" + ")" * 50, "args.l" + "[0]" * 60 + " == 1", "[" * 60 + "]" * 60 + " == []"]
)
def test_an_expression_has_a_depth(text):
    assert flaws(text)


@pytest.mark.parametrize("macro", ["exists", "all", "map"])
def test_folds_are_nested_at_most_twice(macro):
    inner = f"args.l.{macro}(c, c == 1)" + ("" if macro != "map" else " == []")
    two = f"args.l.exists(b, {inner})"
    assert Language().compile(two)
    assert "nested more than 2 deep" in flaws(f"args.l.exists(a, {two})")[0].message


def test_work_that_grows_with_the_arguments_is_cut_off():
    with pytest.raises(Unclear, match="budget"):
        ask("args.l.map(a, args.l.map(b, a + b)).size() > 0", {"l": list(range(5000))})


def test_a_pattern_runs_in_linear_time():
    assert ask("args.t.matches('(a+)+$')", {"t": "a" * 50_000 + "b"}) is False


# --- the engine -------------------------------------------------------------------------------------------------------


def test_without_the_engine_there_is_no_language(monkeypatch):
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    with pytest.raises(NoEngine):
        Language()


def test_one_sight_serves_all_expressions_of_a_language():
    language = Language()
    conditions = [language.compile(f"args.n > {number} && call.kind == 'tool'") for number in range(5)]
    view = language.view(call({"n": 3}))
    assert [condition.holds(view) for condition in conditions] == [True, True, True, False, False]


@for_each(
    "text",
    ["args.n == 1", "args['n'] == 1", "'n' in args && args.n == 1", "args == {'n': 1, 'm': 2}", "size(args) == 2",
     "args.exists(k, k == 'm')", "args[role] == 1", "has(args.n) && !has(args.x)"],
)  # fmt: skip
def test_what_an_expression_does_not_name_changes_nothing(text):
    assert ask(text, {"n": 1, "m": 2}, role="n")
    language = Language()
    both = [language.compile("args.m == 2"), language.compile(text)]
    view = language.view(call({"n": 1, "m": 2}, role="n"))
    assert all(each.holds(view) for each in both)


def test_facts_are_seen_by_group():
    assert nest_facts({"session.calls": {"a": 1}, "session.started": "x"}) == {
        "session": {"calls": {"a": 1}, "started": "x"}
    }


def test_calls_are_told_apart():
    language = Language()
    condition = language.compile("role == 'worker'")
    assert condition.holds(language.view(call()))
    assert not condition.holds(language.view(attrs.evolve(call(), role=None)))


# --- the syntax tree --------------------------------------------------------------------------------------------------


def test_the_tree_has_every_member_at_its_place():
    text = "has(args.a.a) &&\n args . b['ä'] == -1 || args.l.all(i, i.c in [1.5, true, null, 'x', b'y', 2u])"
    found = Language().compile(text).tree
    members = [(node.name, place_of_member(text, node)) for node in found.walk() if node.kind == "member"]
    assert sorted(members) == sorted(
        [("a", 11), ("a", 9), ("b", text.index("b[")), ("l", text.index("l.all")), ("c", text.index("c in"))]
    )
    values = [node.value for node in found.walk() if node.kind == "constant"]
    assert all(value in values for value in (-1, "ä", 1.5, True, None, "x", b"y", 2))


@pytest.mark.parametrize("raw", [b"", b"\n", b"\x12\x05\x22\x03\x10\x01", b"\xff" * 40, b"\x12\x7f", b"\x13", b"\x0b"])
def test_what_is_no_checked_expression_is_refused(raw):
    with pytest.raises(ValueError, match="not a checked expression"):
        tree(raw)


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_a_tree_or_refused(raw):
    with suppress(ValueError):
        tree(raw)
