"""Routing: the same prompt and skills give the same choice, by name first and by whole trigger words then."""

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.contract import Skill
from deedbook.policy.fit import choose


def skill(name, *triggers, source=""):
    return Skill(name, "", "", triggers=triggers, source=source)


GREET = skill("greet", "greet", "hello", "hi")
COUNT = skill("word-count", "count words", "count", "how many words")
REPORT = skill("report", "report", "count words")
SKILLS = [GREET, COUNT, REPORT]


def names(prompt, skills=SKILLS):
    return [choice.skill.name for choice in choose(prompt, skills)]


@for_each(
    ("prompt", "chosen"),
    [
        ("Say hello to Ada", ["greet"]),
        ("HELLO!", ["greet"]),
        ("hi", ["greet"]),
        ("(hi)", ["greet"]),
        ("hi-ho", ["greet"]),
        ("this is his", []),
        ("hello_world", []),
        ("hellos", []),
        ("count the words", ["word-count"]),
        ("count   words", ["word-count", "report"]),
        ("count\nwords", ["word-count", "report"]),
        ("write a report: count words", ["report", "word-count"]),
        ("", []),
        ("   ", []),
        ("nothing fits", []),
    ],
)
def test_routing_finds_triggers_as_whole_words(prompt, chosen):
    assert names(prompt) == chosen


@pytest.mark.parametrize(
    ("prompt", "first"),
    [
        ("hello, use report", "report"),
        ("use word-count: hello hi", "word-count"),
        ("/word-count now", "word-count"),
        ("Word-Count.", "word-count"),
    ],
)
def test_routing_puts_a_named_skill_before_all_triggers(prompt, first):
    choice = choose(prompt, SKILLS)[0]
    assert choice.skill.name == first
    assert choice.score >= 1000
    assert choice.reason == f'the prompt names "{first}"'


@pytest.mark.parametrize("prompt", ["word-counter", "a-word-count", "word-count-2", "word count", "sword-count"])
def test_routing_does_not_take_a_part_of_a_name_for_the_name(prompt):
    assert all(choice.score < 1000 for choice in choose(prompt, SKILLS))


def test_routing_reason_says_which_triggers_were_found():
    (choice,) = choose("hi, hello!", SKILLS)
    assert (choice.score, choice.reason) == (2, 'the prompt says "hello", "hi"')


def test_routing_counts_a_trigger_once_however_it_is_spelled():
    (choice,) = choose("hello hello", [skill("a", "hello", "Hello", " HELLO ")])
    assert (choice.score, choice.reason) == (1, 'the prompt says "hello"')


@pytest.mark.parametrize(
    ("prompt", "trigger"),
    [
        ("STRASSE", "straße"),
        ("cafe\u0301 now", "café"),
        ("\uff48\uff49", "hi"),
        ("привет, мир", "Привет"),
        ("c++ code", "c++"),
    ],
)
def test_routing_compares_words_without_case_and_spelling_of_unicode(prompt, trigger):
    assert names(prompt, [skill("a", trigger)]) == ["a"]


@pytest.mark.parametrize("trigger", ["", " ", "!", "-", "\n", "*"])
def test_routing_trigger_without_a_word_fits_nothing(trigger):
    assert names("say - anything! *", [skill("a", trigger), skill(trigger)]) == []


def test_routing_settles_ties_by_name_then_source():
    twins = [skill("b", "x"), skill("a", "x", source="2"), skill("a", "x", source="1")]
    assert [(c.skill.name, c.skill.source) for c in choose("x", twins)] == [("a", "1"), ("a", "2"), ("b", "")]


def test_routing_many_triggers_never_outweigh_a_name():
    loud = skill("loud", *(f"w{number}" for number in range(1500)))
    prompt = "use quiet " + " ".join(f"w{number}" for number in range(1500))
    assert names(prompt, [loud, skill("quiet")]) == ["quiet", "loud"]


WORDS = st.sampled_from(["greet", "hello", "count", "words", "report", "word-count", "the", "x"])


@given(st.lists(WORDS, max_size=6).map(" ".join), st.permutations(SKILLS))
def test_routing_does_not_depend_on_the_order_of_skills(prompt, skills):
    assert choose(prompt, skills) == choose(prompt, SKILLS)


@given(st.text(max_size=30), st.lists(st.text(max_size=4), max_size=3))
def test_routing_takes_any_text_and_gives_reasons(prompt, triggers):
    for choice in choose(prompt, [skill("a", *triggers)]):
        assert choice.score >= 1
        assert choice.reason


def test_routing_of_a_hostile_prompt_is_linear():
    assert names("hellohello" * 100_000 + " " + "h" * 1_000_000) == []
