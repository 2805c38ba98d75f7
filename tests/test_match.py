"""The match grammar: the tables of docs/match.md, its laws, and what it refuses."""

import itertools
import re
from pathlib import Path
from types import MappingProxyType

import fastjsonschema
import jsonschema_rs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from deedbook.contract import Call, Principal
from deedbook.format import schema
from deedbook.format.errors import BindingError
from deedbook.policy.kinds import DEFAULT_KINDS, KINDS
from deedbook.policy.match import PATHS, SCHEMA, AbilityFacts, Match

PAGE = (Path(__file__).parent.parent / "docs" / "match.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\{.*?\})` \| `(\{.*?\})` \| (yes|no) \|(?: (yes|no) \|)?$", re.MULTILINE)


def facts(ability="files/read", kind="tool", effects="read", tags=(), scopes=(), paths=PATHS):
    return AbilityFacts(ability, kind, effects, frozenset(tags), frozenset(scopes), tuple(paths))


def call(ability="files/read", kind="tool", effects="read", tags=(), principal="local", roles=(), role=None, args=None):
    who = Principal(principal, "cli", frozenset(roles))
    now = "2026-01-01T00:00:00.000Z"
    return Call(ability, kind, args or {}, effects, frozenset(tags), who, role, None, "enforce", "s", now, b"{}", {})


def fits(body, *, allows=False, scopes=(), paths=PATHS, **made):
    """Ask both halves, as the kernel does: the static one about the ability, the dynamic one about the call."""
    match = Match.compile(body, allows=allows)
    asked = call(**made)
    ability = AbilityFacts(asked.ability, asked.kind, asked.effects, asked.tags, frozenset(scopes), tuple(paths))
    if not match.could_match(ability):
        return False
    test = match.test_for(ability)
    return test is None or test(asked)


def refusals(body, **more):
    with pytest.raises(BindingError) as caught:
        Match.compile(body, **more)
    assert {error.code for error in caught.value.errors} == {"BINDING_INVALID"}
    return [error.message for error in caught.value.errors]


def faults(body):
    try:
        Match.compile(body)
    except BindingError as refused:
        return str(refused)
    return ""


# --- the page ---------------------------------------------------------------------------------------------------------


@for_each(("body", "made", "holds", "allowing"), ROW.findall(PAGE))
def test_match_page_row_holds_as_it_says(body, made, holds, allowing):
    read = YAML(typ="safe", pure=True).load
    assert fits(read(body), **read(made)) is (holds == "yes")
    if allowing:
        assert fits(read(body), allows=True, **read(made)) is (allowing == "yes")


def test_match_page_rows_are_all_read():
    assert len(ROW.findall(PAGE)) == sum(line.startswith("| `{") for line in PAGE.splitlines()) > 40


def test_match_page_names_every_key():
    for key in (*SCHEMA["properties"], *SCHEMA["properties"]["args"]["additionalProperties"]["properties"]):
        assert re.search(rf"`{key}`", PAGE), key


# --- the static part --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_kind_left_out_means_tools_and_flows(kind):
    assert Match.compile({}).could_match(facts(kind=kind)) is (kind in DEFAULT_KINDS)
    assert Match.compile({"kind": kind}).could_match(facts(kind=kind))


@pytest.mark.parametrize(
    "body",
    [
        {"abilities": "files/write"},
        {"tags": "slow"},
        {"effects": "write"},
        {"scopes": ["mail"]},
        {"kind": ["model", "memory"]},
    ],
)
def test_static_key_alone_decides_for_the_ability(body):
    match = Match.compile(body)
    assert not match.could_match(facts(tags=["quick"], scopes=["text"]))
    assert match.could_match(facts("files/write", body.get("kind", ["tool"])[0], "write", ["slow", "x"], ["mail", "y"]))


def test_match_without_dynamic_keys_asks_nothing_at_a_call():
    match = Match.compile({"abilities": "files/*", "effects": ["read", "write"]})
    assert match.test_for(facts()) is None
    assert match.holds(call())


def test_match_with_dynamic_keys_asks_at_every_call():
    match = Match.compile({"principals": "ada"})
    assert match.test_for(facts()) is match.holds
    assert match.holds(call(principal="ada"))
    assert not match.holds(call(principal="adam"))


STATIC = {
    "kind": st.sampled_from(["tool", "model", ["tool", "flow"]]),
    "abilities": st.sampled_from(["files/*", ["git/**", "files/read"], "x"]),
    "tags": st.sampled_from(["slow", ["slow", "quick"]]),
    "effects": st.sampled_from(["read", ["write", "irreversible"]]),
    "scopes": st.sampled_from(["text", ["mail", "text"]]),
    "principals": st.sampled_from(["ada", ["agent:*", "local"]]),
    "roles": st.sampled_from(["worker", ["approver", "lead"]]),
    "paths": st.sampled_from(["src/**", ["*.md", "src/a"]]),
    "args": st.sampled_from([{"/n": 1}, {"/path": {"under": "src"}, "/n": {"present": False}}]),
}
BODIES = st.fixed_dictionaries({}, optional=STATIC)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "ability": st.sampled_from(["files/read", "git/log", "x"]),
        "kind": st.sampled_from(["tool", "model"]),
        "effects": st.sampled_from(["read", "write"]),
        "tags": st.sampled_from([[], ["slow"], ["quick", "x"]]),
        "scopes": st.sampled_from([[], ["text"]]),
        "principal": st.sampled_from(["ada", "agent:worker"]),
        "roles": st.sampled_from([[], ["approver"]]),
        "role": st.sampled_from([None, "worker"]),
        "args": st.sampled_from(
            [{}, {"path": "src/a"}, {"paths": ["README.md", "src/a"], "n": 1}, {"file_path": "/x"}]
        ),
    },
)


@given(BODIES, CALLS, st.booleans())
def test_match_holds_exactly_if_each_of_its_keys_alone_holds(body, made, allows):
    kind = {"kind": body.get("kind", list(DEFAULT_KINDS))}
    alone = [fits({**kind, key: value}, allows=allows, **made) for key, value in body.items()]
    assert fits(body, allows=allows, **made) is (all(alone) and fits(kind, **made))


@given(BODIES, CALLS)
def test_match_list_is_any_of_it_in_any_order(body, made):
    for key, value in body.items():
        if isinstance(value, list):
            one = any(fits({**body, key: each}, **made) for each in value)
            assert [fits({**body, key: list(order)}, **made) for order in itertools.permutations(value)] == [one] * 2


@given(BODIES, CALLS)
def test_match_that_allows_holds_for_no_more_than_one_that_guards(body, made):
    assert fits(body, **made) or not fits(body, allows=True, **made)


# --- the dynamic part -------------------------------------------------------------------------------------------------


def test_paths_stand_where_the_ability_says():
    match = Match.compile({"paths": "src/**"})
    moved = match.test_for(facts(paths=["/from", "/to/0"]))
    assert moved(call(args={"from": "src/a"}))
    assert moved(call(args={"to": ["src/a"]}))
    assert not moved(call(args={"path": "src/a"}))


def test_paths_of_an_ability_without_paths_hold_nothing():
    assert not fits({"paths": "**"}, paths=(), args={"path": "a"})


@for_each("bad", ["/a", "../a", "", None, 1, True, {"a": "b"}, ["a"], "~/a"])
def test_paths_never_hold_for_what_is_no_path_inside(bad):
    assert not fits({"paths": "**"}, args={"path": bad if not isinstance(bad, list) else [bad]})
    assert not fits({"paths": "**"}, allows=True, args={"path": "a", "paths": ["b", bad]})


@for_each("odd", ["a\\b", " a", "a\n", "%2e%2e/a", "a%252f..%252fb", "%" + "25" * 20 + "61"])
def test_paths_that_others_read_otherwise_are_guarded_and_never_allowed_elsewhere(odd):
    assert fits({"paths": "**"}, args={"path": odd})
    assert not fits({"paths": "a"}, allows=True, args={"path": odd})
    assert not fits({"paths": "**/..*/**"}, allows=True, args={"path": odd})


ENCODE = st.sampled_from(["{}", "%{:02x}", "%{:02X}", "%25{:02X}"])
STEP = st.sampled_from(["/", "\\", "%2f", "%5C", "/./", "\\x\\..\\", "/%2e/"])


@given(st.data())
def test_no_spelling_of_a_guarded_path_or_url_evades_its_rule_or_passes_as_another(data):
    letters = [each if (form := data.draw(ENCODE)) == "{}" else form.format(ord(each)) for each in "private"]
    start, step = data.draw(st.sampled_from(["", "docs\\..", "docs/%2E%2e"])), data.draw(STEP)
    path = f"{start}{step if start else ''}{''.join(letters)}{step}a"
    assert fits({"args": {"/path": {"under": "private"}}}, args={"path": path})
    assert not fits({"args": {"/path": {"under": "docs"}}}, allows=True, args={"path": path})
    url = f"{data.draw(st.sampled_from(['https://h/', 'HTTPS:/h:443/', 'https:h', 'https://me@H.']))}{step}{path}"
    assert fits({"args": {"/url": {"like": "https://h/private/**"}}}, args={"url": url})
    assert not fits({"args": {"/url": {"like": "https://h/docs/**"}}}, allows=True, args={"url": url})


def test_paths_empty_list_holds_nothing():
    assert not fits({"paths": "**"}, args={"paths": []})
    assert not fits({"paths": "**"}, allows=True, args={"paths": []})


@given(st.lists(st.sampled_from(["src/a", ".env", "src/../x", "/etc", "a/../src/b"]), max_size=4))
def test_paths_want_every_path_to_allow_and_one_to_guard(paths):
    inside = [path in ("src/a", "a/../src/b") for path in paths]
    assert fits({"paths": "src/*"}, allows=True, args={"paths": paths}) is (bool(paths) and all(inside))
    assert fits({"paths": "src/*"}, args={"paths": paths}) is any(inside)


def test_roles_hold_for_the_acting_role_or_one_of_the_principal():
    assert fits({"roles": ["worker"]}, role="worker")
    assert fits({"roles": ["approver"]}, roles=["auditor", "approver"])
    assert not fits({"roles": ["worker"]}, role="work", roles=["workers"])


def test_args_must_all_hold():
    body = {"args": {"/a": 1, "/b": 2, "/c": {"present": True}}}
    assert fits(body, args={"a": 1, "b": 2, "c": None})
    assert not fits(body, args={"a": 1, "b": 2})
    assert not fits(body, args={"a": 1, "b": 3, "c": None})


@pytest.mark.parametrize("args", [{"path": {}}, {"path": [{}]}, {"path": ["a"]}, {"n": None}])
def test_args_of_any_shape_are_judged_without_an_error(args):
    body = {"args": {"/path/0/x": "a", "/n/m": {"min": 1}, "/path": {"under": "."}}}
    assert not fits(body, args=args)


def test_match_keeps_nothing_of_the_body_it_was_made_from():
    body = {"args": {"/a": ["x"]}, "abilities": ["files/read"]}
    match = Match.compile(body)
    body["args"]["/a"].append("y")
    body["abilities"].append("**")
    assert not match.could_match(facts("git/log"))
    assert not match.holds(call(args={"a": "y"}))


def test_match_reads_arguments_that_are_any_mapping():
    assert Match.compile({"args": {"/a/b": 1}}).holds(call(args=MappingProxyType({"a": MappingProxyType({"b": 1})})))


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each(
    ("body", "said"),
    [
        ({"ability": "x"}, '$.ability: unknown key; did you mean "abilities"?'),
        ({"kind": "tools"}, 'did you mean "tool"?'),
        ({"kind": ["tool", "modle"]}, '$.kind[1]: "modle" is not one of'),
        ({"effects": "reed"}, 'did you mean "read"?'),
        ({"abilities": []}, "$.abilities: "),
        ({"abilities": ""}, "$.abilities: "),
        ({"abilities": [""]}, "$.abilities[0]: "),
        ({"tags": 1}, "$.tags: "),
        ({"roles": None}, "$.roles: "),
        ({"args": {}}, "$.args: "),
        ({"args": []}, "$.args: "),
        ({"args": {"path": "x"}}, 'a JSON pointer such as "/path"'),
        ({"args": {"": "x"}}, "JSON pointer"),
        ({"args": {"/a~2": "x"}}, "JSON pointer"),
        ({"args": {"/a": {}}}, "$.args['/a']: "),
        ({"args": {"/a": []}}, "$.args['/a']: "),
        ({"args": {"/a": [[1]]}}, "$.args['/a'][0]: "),
        ({"args": {"/a": {"undr": "x"}}}, "$.args['/a'].undr: unknown key; did you mean \"under\"?"),
        ({"args": {"/a": {"min": "1"}}}, "$.args['/a'].min: "),
        ({"args": {"/a": {"min": True}}}, "$.args['/a'].min: "),
        ({"args": {"/a": {"present": 0}}}, "$.args['/a'].present: "),
        ({"args": {"/a": {"in": "x"}}}, "$.args['/a'].in: "),
        ({"args": {"/a": {"equals": ["x"]}}}, "$.args['/a'].equals: "),
        ({"args": {"/a": {"max": float("nan")}}}, "is not JSON"),
        ({"args": {"/a": {"max": float("inf")}}}, "is not JSON"),
        ({"tags": ("a",)}, "tuple is not a JSON type"),
        ({1: 2}, "not a string"),
        (None, "$: "),
        ([], "$: "),
        ("tool", "$: "),
        ({"paths": "/etc/**"}, '"/etc/**" fits no path'),
        ({"paths": ["src/**", "./a"]}, '"./a" fits no path'),
        ({"paths": "src/"}, '"src/" fits no path'),
        ({"paths": "a/../b"}, "relative, normalised"),
        ({"args": {"/a": {"under": "../x"}}}, "$.args['/a']: under takes relative folders"),
        ({"args": {"/a": {"present": False, "in": [1]}}}, "present: false alone"),
        ({"args": {"/a": {"min": 2, "max": 1}}}, "min is above max"),
        ({"abilities": "*x" * 60_000}, "too large together"),
    ],
)
def test_match_refuses_and_says_where_and_why(body, said):
    assert any(said in message for message in refusals(body)), refusals(body)


def test_match_reports_everything_wrong_at_once_with_its_place():
    body = {"kinds": "tool", "effects": "reed", "args": {"/a": {"undr": "x"}}}
    with pytest.raises(BindingError) as caught:
        Match.compile(body, ".system/hooks/a.yaml:4:3", at=("match",))
    assert {error.place for error in caught.value.errors} == {".system/hooks/a.yaml:4:3"}
    assert {str(error).split(": ")[1] for error in caught.value.errors} == {
        "$.match.kinds",
        "$.match.effects",
        "$.match.args['/a'].undr",
    }


# --- the schema document ----------------------------------------------------------------------------------------------

WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "tool", "read", "/a", "a"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["/a", "a", "", "min", "under", "in", "present", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
BEYOND_SHAPE = ("fits no path", "under takes", "present: false alone", "min is above max")
COMPILED = fastjsonschema.compile(dict(SCHEMA), use_default=False)


@given(BODIES | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x"]), WILD, max_size=3) | WILD)
def test_match_schema_means_the_same_to_both_validators_and_to_compile(body):
    try:
        COMPILED(body)
        fast = True
    except fastjsonschema.JsonSchemaException:
        fast = False
    assert jsonschema_rs.is_valid(SCHEMA, body) is fast
    refused = faults(body)
    assert bool(refused) is not fast or any(words in refused for words in BEYOND_SHAPE)


def test_match_schema_passes_the_lint():
    assert schema.lint(SCHEMA) == ()
