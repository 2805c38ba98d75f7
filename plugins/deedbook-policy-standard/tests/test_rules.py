"""The policy kind ``rules``: the first rule decides, what is not said is denied, and bad rules never bind."""

import subprocess
import sys
import threading
from importlib.metadata import entry_points

import attrs
import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Call, Decision, PolicyTarget, Principal
from deedbook.format import schema
from deedbook.format.errors import BindingError
from deedbook.policy.gates import BoundGate, merge
from deedbook.policy.match import PATHS, AbilityFacts, Match
from deedbook_policy_standard.rules import Rules
from deedbook_policy_standard.ruleset import SETTINGS

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


@for_each(
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


# --- conditions -------------------------------------------------------------------------------------------------------


def when(text, then, **match):
    return {"match": match, "when": text, "then": then}


def test_a_condition_is_asked_where_the_match_holds():
    policy = rules(when("args.n > 3", "ask", abilities="a"), {"match": {}, "then": "allow"})
    assert policy(call("a", args={"n": 4})).outcome == "ask"
    assert policy(call("a", args={"n": 3})).outcome == "allow"
    assert policy(call("b", args={"n": 4})).outcome == "allow"


@for_each("then", ["allow", "ask", "deny"])
@for_each("text", ["args.n > 3", "args.flag", "args.flag > 1"])
def test_an_unclear_condition_denies_and_names_its_rule_whatever_stands_there(then, text):
    policy = rules({"match": {"abilities": "x"}, "then": "allow"}, when(text, then), default="allow")
    decision = policy(call(args={"flag": "yes"}))
    assert decision.outcome == "deny"
    assert decision.reason.startswith("rule 2: when cannot be decided: ")
    assert decision.signals == {"rule": 1, "unclear": True}


def test_a_rule_before_an_unclear_one_decides():
    policy = rules({"match": {"args": {"/n": 1}}, "then": "ask"}, when("args.missing", "allow"))
    assert policy(call(args={"n": 1})).outcome == "ask"
    assert policy(call(args={"n": 2})).outcome == "deny"


def test_a_condition_sees_facts_as_they_are_given():
    policy = rules(when("facts.session.calls['a'] < 2", "allow"), reads=["session.calls"])
    asked = attrs.evolve(call("a"), facts={"session.calls": {"a": 1}})
    assert policy(asked).outcome == "allow"
    assert policy(attrs.evolve(asked, facts={"session.calls": {"a": 2}})).outcome == "deny"
    assert policy(call("a")).signals == {"rule": 0, "unclear": True}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["allow", "ask", "deny"])), max_size=5), st.integers(0, 3))
def test_a_condition_and_a_match_that_say_the_same_decide_the_same(said, asked):
    said = list({number: (number, then) for number, then in said}.values())
    by_match = rules(*({"match": {"args": {"/n": number}}, "then": then} for number, then in said))
    by_when = rules(*(when(f"args.n == {number}", then) for number, then in said))
    one = call(args={"n": asked})
    assert (by_match(one).outcome, by_match(one).signals) == (by_when(one).outcome, by_when(one).signals)


def test_without_the_engine_only_rules_with_conditions_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    assert rules({"match": {}, "then": "allow"})(call()).outcome == "allow"
    [error] = refused({"rules": [when("args.n > 1", "allow")]})
    assert error.code == "NOT_AVAILABLE"
    assert "pip install 'deedbook-policy-standard[cel]'" in error.message


def test_the_engine_is_imported_where_a_condition_is_written():
    code = (
        "import sys; from deedbook_policy_standard.rules import Rules;"
        "Rules({'rules': [{'match': {}, 'then': 'allow'}]}, None);"
        "print('cel_expr_python' in sys.modules);"
        "Rules({'rules': [{'match': {}, 'when': 'true', 'then': 'allow'}]}, None);"
        "print('cel_expr_python' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


# --- policies that contradict each other ------------------------------------------------------------------------------


def bound(name, policy):
    return BoundGate(
        id=name, kind="policy", digest="0" * 64, ask=policy, may=frozenset({"allow", "ask", "deny"}), limit=9
    )


@given(st.lists(st.tuples(RULES, st.sampled_from(["allow", "ask", "deny"])), min_size=1, max_size=4), CALLS, st.data())
def test_of_contradicting_policies_the_most_cautious_decides_in_any_order(bodies, asked, data):
    policies = [bound(f"p{index}", rules(*body, default=default)) for index, (body, default) in enumerate(bodies)]
    answers = [(gate, gate.ask(asked)) for gate in policies]
    outcomes = {decision.outcome for _, decision in answers}
    expected = next(word for word in ("deny", "ask", "allow") if word in outcomes)
    for order in (answers, data.draw(st.permutations(answers)), answers * 2):
        worst = merge(order)
        assert (worst[1].outcome if worst else "allow") == expected
    more = merge([*answers, (bound("more", None), Decision("deny", "no"))])
    assert more is not None
    assert more[1].outcome == "deny"


# --- rules about the same calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "doubled"),
    [
        ("allow", "allow", True),
        ("deny", "deny", True),
        ("deny", "ask", True),
        ("ask", "allow", True),
        ("allow", "deny", False),
    ],
)
def test_a_rule_that_can_never_decide_after_another_is_refused(first, second, doubled):
    """A match that allows wants all paths to fit: the same match that guards still holds where one does."""
    match = {"paths": "src/**"}
    body = {"rules": [{"match": match, "then": first}, {"match": dict(match), "then": second}]}
    if not doubled:
        policy = Rules(body, None)
        assert policy(call(args={"paths": ["src/a", "b"]})).signals == {"rule": 1}
        return
    [error] = refused(body)
    assert error.message == "$.rules[1]: is about the same calls as rule 1; leave one of them out"


def test_rules_with_other_conditions_are_about_other_calls():
    rules(when("args.n > 1", "deny"), when("args.n > 2", "deny"), {"match": {}, "then": "deny"})
    assert refused({"rules": [when("args.n > 1", "deny"), when("args.n > 1", "deny")]})


# --- what does not bind -----------------------------------------------------------------------------------------------


@for_each(
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
        ({"rules": [], "reads": "session.calls"}, "$.reads: "),
        ({"rules": [], "reads": ["a", "a"]}, "$.reads: "),
        ({"rules": [{"match": {}, "when": 1, "then": "deny"}]}, "$.rules[0].when: "),
        ({"rules": [{"match": {}, "when": "", "then": "deny"}]}, "$.rules[0].when: "),
        ({"rules": [{"match": {}, "when": " " * 2001, "then": "deny"}]}, "$.rules[0].when: "),
        ({"rules": [{"match": {}, "when": "arg.n > 1", "then": "deny"}]}, "$.rules[0].when: arg is not known"),
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


@pytest.mark.parametrize("condition", ["private/a", ["private/a"], {"equals": "private/a"}, {"in": ["private/a"]}])
def test_rule_that_guards_a_path_by_its_text_is_noted(condition):
    body = {
        "rules": [{"match": {"args": {"/path": condition}}, "then": "deny", "reason": "private"}],
        "default": "allow",
    }
    reading = PolicyTarget(
        id="file-read", kind="tool", effects="read", tags=frozenset(), scopes=frozenset(), paths=PATHS
    )
    (found,) = Rules.lint(body, [reading])
    assert "compares the path /path as text" in found.message
    body["rules"][0]["match"]["args"] = {"/path": {"under": "private/a"}}
    assert not list(Rules.lint(body, [reading]))
    body["rules"][0] = {"match": {"args": {"/path": condition}}, "then": "allow"}
    assert not list(Rules.lint(body, [reading]))


def test_rules_are_an_entry_point_of_the_kernel():
    found = entry_points(group="deedbook.policy_kinds", name="rules")
    if not found:
        pytest.skip("deedbook is not installed with its entry points here")
    assert next(iter(found)).load() is Rules
