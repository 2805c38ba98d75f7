"""Matching: the index finds what the kernel's own choice finds, and hashing adds what is spelled alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Skill
from deedbook.sessions.prompts import choose
from deedbook_flow_runcontext.hashing import HashingMatcher
from deedbook_flow_runcontext.keywords import KeywordIndex
from deedbook_flow_runcontext.task_text import build_task_text

WORDS = st.sampled_from(
    [
        "greet",
        "word",
        "word-count",
        "count",
        "c++",
        "a.b",
        "Straße",
        "STRASSE",
        "é",
        "e\u0301",
        "_x",
        "x",
        "-",
        "the",
        "\u01c5",
    ]
)
PHRASES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
SKILLS = st.lists(
    st.tuples(st.sampled_from(["word-count", "word", "greet", "x-x", "count-2"]), st.lists(PHRASES, max_size=4)),
    max_size=5, unique_by=lambda each: each[0],
)  # fmt: skip
TASKS = st.lists(st.one_of(WORDS, st.sampled_from(["word-count-2", "  ", "xé", "x,", "a.b.", "c++!"])), max_size=8)


@given(SKILLS, TASKS.map(" ".join))
def test_index_finds_what_the_choice_of_a_run_finds(skills, task):
    made = [Skill(name, "does", "", triggers=tuple(triggers)) for name, triggers in skills]
    found = [(match.name, match.score) for match in KeywordIndex(made).match(task)]
    assert found == [(choice.skill.name, choice.score) for choice in choose(task, made)]


def test_reasons_name_what_the_task_has():
    index = KeywordIndex([Skill("greet", "Greets.", "", triggers=("Say Hello", "hi"))])
    assert [match.reason for match in index.match("please say  HELLO, hi")] == ['the task has "hi", "Say Hello"']
    assert [match.reason for match in index.match("greet her")] == ['the task names "greet"']
    assert index.match("greeting") == []


# --- hashing ----------------------------------------------------------------------------------------------------------

OFFERED = (
    Skill("greet", "Greets a person by name.", "", triggers=("hello",)),
    Skill("translate", "Translates documents between languages.", ""),
    Skill("deploy", "Deploys the documentation to the web server.", "", metadata={"disable-model-invocation": True}),
)


def names(task, **settings):
    return [match.name for match in HashingMatcher(OFFERED, **settings).match(task)]


def test_hashing_finds_other_forms_of_a_word():
    assert names("translating a document") == ["translate"]
    assert KeywordIndex(OFFERED).match("translating a document") == []


def test_hashing_compares_spelling_and_not_meaning():
    assert names("render this letter in French") == []


def test_hashing_keeps_keyword_matches_first():
    assert names("hello, translating a document")[0] == "greet"
    assert names("greet a person by name") == ["greet"]


def test_hashing_never_finds_a_skill_that_only_its_name_selects():
    assert "deploy" not in names("deploying documentation to the web server")
    assert names("deploy documentation")[0] == "deploy"


@pytest.mark.parametrize("task", ["", "the of and", "\u0301", "🎉", "\ud800"])
def test_hashing_finds_nothing_in_a_text_without_words(task):
    assert names(task) == []


def test_hashing_respects_its_limits():
    many = [Skill(f"skill-{number}", "Translates documents.", "") for number in range(9)]
    assert [match.name for match in HashingMatcher(many, most=2).match("translating documents")] == [
        "skill-0",
        "skill-1",
    ]
    assert HashingMatcher(many, similarity=1.0).match("translating") == []
    assert HashingMatcher([]).match("translating") == []


# --- the text ---------------------------------------------------------------------------------------------------------


def test_task_text_has_what_to_do_and_not_the_limits():
    clarification = {"intent": "greet Ada", "constraints": ["do not deploy"], "needs_advisor": False,
                     "answers": [{"question": "which Ada?", "answer": "Lovelace"}], "schema_version": "v1"}  # fmt: skip
    scope = {"skill": "greet", "constraints": ["briefly"], "out_of_scope": ["survey"], "abilities": ["echo"]}
    text = build_task_text(clarification, scope, "Say hello to Ada")
    assert text == "Say hello to Ada\ngreet Ada\nwhich Ada?\nLovelace\ngreet"


def test_task_text_stops_at_sixteen_levels():
    deep = "found"
    for _ in range(10_000):
        deep = [deep]
    assert build_task_text({"intent": deep}, {}, "task") == "task"
