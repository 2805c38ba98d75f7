"""The policy kind ``rules``: the first rule decides, what is not said is denied, and bad rules never bind."""

import threading
from importlib.metadata import entry_points

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import schema
from deedbook.contracts import Call, Decision, Principal
from deedbook.errors import BindingError
from deedbook.match import AbilityFacts, Match
from deedbook.rules import SETTINGS, Rules

BASELINE = {
    "rules": [
        {"match": {"effects": ["none", "read"]}, "then": "allow"},
        {"match": {"abilities": ["code/Edit"], "args": {"/file_path": {"under": ["src", "tests"]}}}, "then": "allow"},
        {"match": {"abilities": ["code/Bash", "git/commit"]}, "then": "ask", "reason": "a person looks first"},
    ],
    "default": "deny",
}


def call(ability="code/Edit", effects="write", kind="tool", tags=(), args=None, principal="local"):
    now = "2026-01-01T00:00:00.000Z"
    who = Principal(principal, "cli")
    return Call(ability, kind, args or {}, effects, frozenset(tags), who, None, None, "enforce", "s", now, b"{}", {})


def rules(*body, **more):
    return Rules({"rules": list(body), **more}, None)


def refused(settings):
    with pytest.raises(BindingError) as caught:
        Rules(settings, None)
    return caught.value.errors


# --- deciding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "outcome", "rule"),
    [
        (call("x", "read"), "allow", 0),
        (call("code/Bash", "none"), "allow", 0),
        (call(args={"file_path": "src/a.py"}), "allow", 1),
        (call(args={"file_path": "src/../.env"}), "deny", None),
        (call(args={"file_path": "/etc/passwd"}), "deny", None),
        (call(args={}), "deny", None),
        (call("code/Bash"), "ask", 2),
        (call("git/commit", "irreversible"), "ask", 2),
        (call("git/push"), "deny", None),
        (call("model/large", "read", "model"), "deny", None),
    ],
)
def test_rules_decide_the_baseline_of_the_design(asked, outcome, rule):
    decision = Rules(BASELINE, None)(asked)
    assert (decision.outcome, decision.signals.get("rule")) == (outcome, rule)
    assert decision.args is None


@pytest.mark.parametrize("body", [{"rules": []}, {"rules": [{"match": {"abilities": "other"}, "then": "allow"}]}])
def test_rules_deny_what_no_rule_matches(body):
    decision = Rules(body, None)(call())
    assert decision == Decision("deny", "no rule matches; the default is deny")


@pytest.mark.parametrize("default", ["allow", "ask", "deny"])
def test_rules_default_decides_without_naming_a_rule(default):
    decision = rules(default=default)(call())
    assert decision.outcome == default
    assert decision.signals == {}
    assert bool(decision.reason) is (default != "allow")


def test_rules_first_that_holds_decides():
    deny = {"match": {"args": {"/force": True}}, "then": "deny", "reason": "no force"}
    allow = {"match": {}, "then": "allow"}
    assert rules(deny, allow)(call(args={"force": True})).reason == "no force"
    assert rules(deny, allow)(call(args={"force": False})).outcome == "allow"
    assert rules(allow, deny)(call(args={"force": True})).outcome == "allow"


def test_rules_say_why_they_deny_or_ask_even_without_a_reason():
    policy = rules({"match": {"tags": "x"}, "then": "ask"}, {"match": {}, "then": "deny"})
    assert policy(call(tags=["x"])).reason == "rule 1 says ask"
    assert policy(call()).reason == "rule 2 says deny"


def test_rules_use_one_decision_object_for_each_rule_and_the_default():
    policy = Rules(BASELINE, None)
    assert policy(call("x", "read")) is policy(call("y", "none"))
    assert policy(call("git/push")) is policy(call("z", "irreversible"))
    assert policy(call("code/Bash")) is not policy(call("git/push"))


def test_rules_want_every_path_to_allow_and_one_to_deny():
    guard = {"match": {"paths": "**/.env"}, "then": "deny"}
    source = {"match": {"paths": "src/**"}, "then": "allow"}
    policy = rules(guard, source)
    assert policy(call(args={"paths": ["src/a", "src/b"]})).outcome == "allow"
    assert policy(call(args={"paths": ["src/a", "/etc/passwd"]})).signals == {}
    assert policy(call(args={"paths": ["src/a", "src/x/../.env"]})).signals == {"rule": 0}


def test_rules_are_asked_about_the_kind_the_match_names():
    policy = rules({"match": {"kind": "model"}, "then": "allow"})
    assert policy(call("model/large", "read", "model")).outcome == "allow"
    assert policy(call("model/large", "read", "tool")).outcome == "deny"


# --- the same answer, however often and in whatever order it is asked -------------------------------------------------

MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["tool", ["tool", "model"]]),
        "abilities": st.sampled_from(["a", "a/*", ["b", "**"]]),
        "effects": st.sampled_from(["read", ["write", "none"]]),
        "tags": st.sampled_from(["t", ["u", "t"]]),
        "principals": st.sampled_from(["ada", "a*"]),
        "paths": st.sampled_from(["src/**", "*"]),
        "args": st.sampled_from([{"/n": 1}, {"/n": {"min": 2}}, {"/path": {"under": "src"}}]),
    },
)
RULES = st.lists(
    st.fixed_dictionaries({"match": MATCHES, "then": st.sampled_from(["allow", "ask", "deny"])}),
    max_size=5,
    unique_by=lambda rule: str(sorted(rule["match"].items())),
)
CALLS = st.builds(
    call,
    ability=st.sampled_from(["a", "a/b", "b"]),
    effects=st.sampled_from(["none", "read", "write"]),
    kind=st.sampled_from(["tool", "model", "memory"]),
    tags=st.sampled_from([(), ("t",), ("u", "v")]),
    args=st.sampled_from([{}, {"n": 1}, {"n": 3, "path": "src/a"}, {"paths": ["a", "src/b"]}, {"path": "/a"}]),
    principal=st.sampled_from(["ada", "bob"]),
)


def by_definition(body, default, asked):
    """Ask each rule in turn, with nothing remembered and nothing decided early."""
    for rule in body:
        match = Match.compile(rule["match"], allows=rule["then"] == "allow")
        static = match.could_match(AbilityFacts(asked.ability, asked.kind, asked.effects, asked.tags))
        if static and match.holds(asked):
            return rule["then"]
    return default


@given(RULES, st.sampled_from(["allow", "ask", "deny"]), st.lists(CALLS, max_size=6))
def test_rules_answer_as_their_definition_whatever_was_asked_before(body, default, calls):
    policy = rules(*body, default=default)
    first = [policy(asked) for asked in calls]
    assert [decision.outcome for decision in first] == [by_definition(body, default, asked) for asked in calls]
    again = [policy(asked) for asked in reversed(calls)]
    assert all(one is other for one, other in zip(first, reversed(again), strict=True))


@given(RULES, CALLS)
def test_rules_without_an_allow_never_allow(body, asked):
    cautious = [{**rule, "then": "ask" if rule["then"] == "allow" else rule["then"]} for rule in body]
    assert rules(*cautious)(asked).outcome != "allow"


def test_rules_remember_a_bounded_number_of_abilities():
    policy = rules({"match": {"abilities": "x*"}, "then": "allow"})
    outcomes = {policy(call(f"{letter}{number}")).outcome for number in range(5000) for letter in "x"}
    assert outcomes == {"allow"}
    assert len(policy._plans) <= 4096
    assert policy(call("y")).outcome == "deny"


def test_rules_tell_calls_of_one_ability_apart_by_effects_and_tags():
    policy = rules({"match": {"tags": "safe", "effects": "read"}, "then": "allow"})
    asked = call("a", "read", tags=["safe"])
    outcomes = [
        policy(each).outcome for each in (asked, attrs.evolve(asked, effects="write"), call("a", "read"), asked)
    ]
    assert outcomes == ["allow", "deny", "deny", "allow"]


def test_rules_may_be_asked_by_many_threads():
    policy = Rules(BASELINE, None)
    wrong = []

    def ask(offset):
        for number in range(2000):
            read = (number + offset) % 2 == 0
            decision = policy(call(f"a{number}", "read" if read else "write"))
            if decision.outcome != ("allow" if read else "deny"):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- what does not bind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, 'the key "rules" is missing'),
        ({"rules": {}}, "$.rules: "),
        ({"rules": [1]}, "$.rules[0]: "),
        ({"rules": [{"then": "allow"}]}, 'the key "match" is missing'),
        ({"rules": [{"match": {}}]}, 'the key "then" is missing'),
        ({"rules": [{"match": {}, "then": "alow"}]}, 'did you mean "allow"?'),
        ({"rules": [{"match": {}, "then": "transform"}]}, "$.rules[0].then: "),
        ({"rules": [{"match": {}, "then": "deny", "reson": "x"}]}, 'did you mean "reason"?'),
        ({"rules": [{"match": {}, "then": "deny", "reason": ""}]}, "$.rules[0].reason: "),
        ({"rules": [{"match": {}, "then": "deny", "reason": "x" * 501}]}, "$.rules[0].reason: "),
        ({"rules": [{"match": None, "then": "allow"}]}, "$.rules[0].match: "),
        ({"rules": [{"match": {"kinds": "tool"}, "then": "allow"}]}, 'match.kinds: unknown key; did you mean "kind"?'),
        ({"rules": [{"match": {"paths": "/etc/*"}, "then": "allow"}]}, "$.rules[0].match.paths: "),
        ({"rules": [], "default": "advisory"}, "$.default: "),
        ({"rules": [], "defualt": "allow"}, 'did you mean "default"?'),
        (None, "$: "),
        ([], "$: "),
    ],
)  # fmt: skip
def test_rules_refuse_and_say_where_and_why(settings, said):
    errors = refused(settings)
    assert {error.code for error in errors} == {"BINDING_INVALID"}
    assert any(said in error.message for error in errors), errors


def test_rules_see_the_scopes_and_the_paths_of_the_ability():
    rules = [
        {"match": {"scopes": "mail"}, "then": "deny"},
        {"match": {"paths": "secrets/**"}, "then": "deny"},
    ]
    policy = Rules({"rules": rules, "default": "allow"}, None)
    asked = call(args={"target": "secrets/key", "path": "docs/a.md"})
    assert policy(asked).outcome == "allow"
    assert policy(attrs.evolve(asked, paths=("/target",))).signals == {"rule": 1}
    assert policy(attrs.evolve(asked, scopes=frozenset({"mail"}))).signals == {"rule": 0}


def test_rules_refuse_everything_wrong_at_once():
    bad = [
        {"match": {"kinds": 1}, "then": "alow"},
        {"when": "x", "then": "deny"},
        {"match": {"scopes": 1}, "then": "ask"},
    ]
    places = {error.message.split(": ")[0] for error in refused({"rules": bad})}
    expected = {".rules[0].match.kinds", ".rules[0].then", ".rules[1]", ".rules[1].when", ".rules[2].match.scopes"}
    assert places == {f"${place}" for place in expected}


# --- a plugin like any other ------------------------------------------------------------------------------------------


def test_rules_declare_that_they_are_pure_and_read_no_facts():
    assert Rules.spec.pure
    assert not Rules.spec.reads
    assert not Rules.spec.rewrites
    assert Rules.spec.settings is SETTINGS
    assert schema.lint(SETTINGS) == ()


def test_rules_are_an_entry_point_of_the_kernel():
    found = entry_points(group="deedbook.policy_kinds", name="rules")
    if not found:
        pytest.skip("deedbook is not installed with its entry points here")
    assert next(iter(found)).load() is Rules
