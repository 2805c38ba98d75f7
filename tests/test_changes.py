"""What changed between two charters, in words: looser, tighter, or neither; nothing goes unsaid."""

import copy

import pytest
import workshop
from hypothesis import given
from hypothesis import strategies as st

from deedbook.charter.changes import compare
from deedbook.charter.difference import Difference

BASE_POLICY = "rules:\n  - {match: {effects: [read]}, then: allow}\n  - {match: {tags: x}, then: deny}\ndefault: ask\n"


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """Give a charter's document with an entry in every section."""
    shop = workshop.bench(tmp_path_factory.mktemp("changes"))
    shop.offer("policy", "other", workshop.Judge)
    shop.hook("look", "match: {kind: [tool]}\nwith: {a: 1}\n")
    shop.hook("named")
    shop.policy("base", BASE_POLICY)
    shop.policy("odd", "limit: 3\n", kind="other")
    shop.ability(
        "echo",
        "effects: write\ntags: [a]\ntimeout_ms: 9\nhooks: {pre_call: [named]}\npolicies: [base]\nuses: [loop]\n"
        "schema_in: {required: [text]}\n",
    )
    shop.ability("loop", handler="flow: loop")
    shop.write("agents/lead.md", "Lead.\n")
    shop.settings(
        "principals: {ada: {roles: [approver]}}\nsecrets: {gh: {env: TOKEN}}\n"
        "seal: [user.message/text, {detect: card}]\nfiles: {roots: [src]}\n"
        "profiles:\n  local: {flow: loop, models: {m: {provider: chat, model: x}}}\n"
    )
    made = copy.deepcopy(dict(shop.compile().document))
    made["skills"] = {"greet": {"description": "", "body": "", "allowed": ["echo"], "triggers": [], "metadata": {}}}
    shop.withdraw()
    return made


def changed(document, change):
    """Return the difference that *change* (a function of a copy) makes, and the one it makes backwards."""
    other = copy.deepcopy(document)
    change(other)
    return compare(document, other), compare(other, document)


def put(*path, to):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = to

    return change


def drop(*path):
    def change(document):
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return change


ECHO, LOOK, RULES = ("abilities", "echo"), ("hooks", "look"), ("policies", "base", "settings")
DENY, ALLOW = {"match": {"tags": "x"}, "then": "deny"}, {"match": {"effects": ["read"]}, "then": "allow"}
ASK = {"match": {}, "then": "ask"}
TURNS = {
    "enforcement: observe": (put("enforcement", to="observe"), "looser", "enforcement: observe, was enforce"),
    "lock: required": (put("lock", to="required"), "tighter", "lock: required, was auto"),
    "durability: os": (put("durability", to="os"), "looser", "durability: os, was boundary"),
    "durability: always": (put("durability", to="always"), "tighter", "durability: always"),
    "fewer rounds": (put("max_rounds", to=0), "tighter", "max_rounds: 0, was 3"),
    "more rounds": (put("max_rounds", to=4), "looser", "max_rounds: 4, was 3"),
    "an ability less": (drop(*ECHO), "tighter", "ability echo is gone"),
    "lower effects": (put(*ECHO, "effects", to="read"), "looser", "ability echo: effects: read, was write"),
    "higher effects": (put(*ECHO, "effects", to="irreversible"), "tighter", "effects: irreversible, was write"),
    "no limit": (put(*ECHO, "timeout_ms", to=None), "looser", "timeout_ms: null, was 9"),
    "a shorter limit": (put(*ECHO, "timeout_ms", to=5), "tighter", "timeout_ms: 5, was 9"),
    "one more to use": (put(*ECHO, "uses", to=["echo", "loop"]), "looser", "ability echo: uses echo is new"),
    "one more tag": (put(*ECHO, "tags", to=["a", "b"]), "tighter", "ability echo: tag b is new"),
    "no policy": (put(*ECHO, "policies", to=[]), "looser", "ability echo: policy base is gone"),
    "no hook": (put(*ECHO, "hooks", to={}), "looser", "ability echo: hook at pre_call named is gone"),
    "one more hook": (put(*ECHO, "hooks", "post_call", to=["x"]), "tighter", "hook at post_call x is new"),
    "no narrowing": (put(*ECHO, "schema_in", to=None), "looser", "ability echo: schema_in is gone"),
    "narrower results": (put(*ECHO, "schema_out", to="0" * 64), "tighter", "ability echo: schema_out is new"),
    "a hook less": (drop(*LOOK), "looser", "hook look is gone"),
    "a hook's longer limit": (put(*LOOK, "timeout_ms", to=5000), "looser", "hook look: timeout_ms: 5000, was 1000"),
    "a policy less": (drop("policies", "base"), "looser", "policy base is gone"),
    "default allow": (put(*RULES, "default", to="allow"), "looser", "policy base: default: allow, was ask"),
    "default deny": (put(*RULES, "default", to="deny"), "tighter", "policy base: default: deny, was ask"),
    "a rule that denies": (put(*RULES, "rules", to=[ALLOW, DENY, DENY]), "tighter", '"then":"deny"} is new'),
    "a rule that denied": (put(*RULES, "rules", to=[ALLOW]), "looser", '"then":"deny"} is gone'),
    "a rule that allows": (put(*RULES, "rules", to=[ALLOW, ALLOW, DENY]), "looser", '"then":"allow"} is new'),
    "a rule that allowed": (put(*RULES, "rules", to=[DENY]), "tighter", '"then":"allow"} is gone'),
    "a skill less": (drop("skills", "greet"), "tighter", "skill greet is gone"),
    "a skill's ability": (put("skills", "greet", "allowed", to=[]), "tighter", "allowed ability echo is gone"),
    "a role more": (put("principals", "ada", "roles", to=["approver", "root"]), "looser", "role root is new"),
    "a principal less": (drop("principals", "ada"), "tighter", "principal ada is gone"),
    "a root more": (put("file_roots", to=["src", "docs"]), "looser", "file root docs is new"),
    "a seal less": (put("seal", to=["user.message/text"]), "looser", 'seal {"detect":"card"} is gone'),
}  # fmt: skip


@pytest.mark.parametrize("what", TURNS)
def test_what_has_a_direction_has_the_other_one_backwards(document, what):
    change, way, words = TURNS[what]
    there, back = changed(document, change)
    other = {"looser": "tighter", "tighter": "looser"}[way]
    assert [text for text in getattr(there, way) if words in text]
    assert (getattr(there, other), there.other, getattr(back, way), back.other) == ((), (), (), ())
    assert len(getattr(back, other)) == len(getattr(there, way)) == 1


MAYBE = {
    "another schema": put(*ECHO, "schema_in", to="1" * 64),
    "the plugin's schema": put(*ECHO, "takes", to="1" * 64),
    "settings": put(*ECHO, "settings", to={"a": 1}),
    "another plugin": put(*ECHO, "plugin", to=["tool", "other"]),
    "paths": put(*ECHO, "paths", to=["/to"]),
    "scopes": put(*ECHO, "scopes", to=["text"]),
    "big integers": put(*ECHO, "big_integers", to=True),
    "a hook's match": put(*LOOK, "match", to=None),
    "a hook's settings": put(*LOOK, "settings", to={}),
    "rules in another order": put(*RULES, "rules", to=[DENY, ALLOW]),
    "a rule that asks": put(*RULES, "rules", to=[ALLOW, ASK, DENY]),
    "a policy's match": put("policies", "base", "match", to={"kind": ["tool"]}),
    "settings of another kind of policy": put("policies", "odd", "settings", to={"limit": 4}),
    "for whom a principal acts": put("principals", "ada", "on_behalf_of", to="bob"),
    "a plugin's code": put("plugins", "tool/echo", "digest", to="1" * 64),
}


@pytest.mark.parametrize("what", MAYBE)
def test_what_nobody_can_tell_counts_as_looser_both_ways(document, what):
    there, back = changed(document, MAYBE[what])
    assert (len(there.looser), there.tighter, there.other) == (1, (), ())
    assert (len(back.looser), back.tighter, back.other) == (1, (), ())


NEITHER = {
    "kernel": (put("kernel", to="0.2.0"), 'kernel: "0.2.0", was "0.1.0"'),
    "the flow": (put("flow", to=None), 'flow: null, was "loop"'),
    "instructions": (put("instructions", "lead", to="Other."), "role lead changed"),
    "a summary": (put(*ECHO, "summary", to="x"), "ability echo: summary changed"),
    "a priority": (put(*LOOK, "priority", to=5), "hook look: priority changed"),
    "a skill's words": (put("skills", "greet", "body", to="x"), "skill greet: body changed"),
    "an unused plugin": (put("plugins", "tool/new", to={}), "plugin tool/new is new"),
    "a comment": (put("sources", ".system/deedbook.yaml", to="0" * 64), "source .system/deedbook.yaml changed"),
    "the variable of a secret": (put("secrets", to={}), 'secrets: {}, was {"gh":"TOKEN"}'),
}


@pytest.mark.parametrize("what", NEITHER)
def test_what_allows_and_forbids_nothing_is_said_all_the_same(document, what):
    change, words = NEITHER[what]
    there, _ = changed(document, change)
    assert there == Difference(other=(words,))


def test_a_model_of_another_chosen_profile_is_neither_looser_nor_tighter(document):
    choose = put("profile", to="other")
    model = put("abilities", "model/m", to={**document["abilities"]["model/m"], "takes": "1" * 64, "timeout_ms": 5})
    there, back = changed(document, lambda other: (choose(other), model(other)))
    assert (there.looser, there.tighter, back.looser, back.tighter) == ((), (), (), ())
    assert "ability model/m: takes changed" in there.other
    edit = put("sources", ".system/deedbook.yaml", to="0" * 64)
    edited, _ = changed(document, lambda other: (choose(other), model(other), edit(other)))
    assert "ability model/m: takes changed" in edited.looser, "a changed file may say anything"


def test_a_changed_plugin_is_named_with_its_distribution_and_versions(document):
    there, _ = changed(document, put("plugins", "tool/echo", "version", to="2.0"))
    assert there.looser == ("plugin tool/echo: offered 2.0, other code than offered 1.0",)


def test_places_alone_are_no_change(document):
    there, _ = changed(document, put(*ECHO, "place", to="elsewhere:9"))
    assert not there


def test_the_first_charter_is_neither_looser_nor_tighter(document):
    assert compare(None, document) == Difference(other=("first charter of this workspace",))


def test_a_charter_of_another_form_may_have_been_stricter(document):
    assert compare({"format": "0"}, document).looser


def test_a_charter_is_no_different_from_itself(document):
    assert not compare(document, copy.deepcopy(document))


# --- laws -------------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(sorted)
SETS = (
    (*ECHO, "uses"), (*ECHO, "tags"), (*ECHO, "policies"), (*ECHO, "hooks", "pre_call"), (*ECHO, "hooks", "post_call"),
    ("skills", "greet", "allowed"), ("principals", "ada", "roles"), ("file_roots",), ("seal",),
)  # fmt: skip
SECTIONS = ("abilities", "hooks", "policies", "skills", "principals")


@st.composite
def documents(draw, document):
    """Draw a charter's document with other sets in it, and without some entries."""
    made = copy.deepcopy(document)
    for path in SETS:
        put(*path, to=draw(NAMES))(made)
    for section in SECTIONS:
        for name in draw(st.sets(st.sampled_from(sorted(made[section])))):
            del made[section][name]
    return made


def backwards(texts):
    swapped = {"new": "gone", "gone": "new"}
    return sorted(f"{text.rpartition(' ')[0]} {swapped[text.rpartition(' ')[2]]}" for text in texts)


@given(data=st.data())
def test_for_sets_what_is_looser_one_way_is_tighter_the_other(document, data):
    old, new = data.draw(documents(document)), data.draw(documents(document))
    there, back = compare(old, new), compare(new, old)
    assert sorted(there.looser) == backwards(back.tighter)
    assert sorted(there.tighter) == backwards(back.looser)


@given(data=st.data())
def test_two_charters_differ_in_words_exactly_if_they_differ(document, data):
    old, new = data.draw(documents(document)), data.draw(documents(document))
    assert bool(compare(old, new)) == (old != new)
