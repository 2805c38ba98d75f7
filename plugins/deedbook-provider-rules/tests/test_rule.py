"""Rules of a skill are checked whole before any is used: what is wrong is named by rule, step and reason."""

import copy

import pytest

from deedbook import Failed
from deedbook_provider_rules.rule import fit, rules_of


def with_(path, value):
    """Return what sets one part of a rule."""

    def change(rule):
        *above, last = path
        for part in above:
            rule = rule[part]
        if value is None:
            del rule[last]
        else:
            rule[last] = value

    return change


WRONG = {
    "pattern missing": (with_(["pattern"], None), "rule 1 of skill greet: pattern is missing"),
    "pattern no text": (with_(["pattern"], 1), "pattern has to be a text"),
    "pattern empty": (with_(["pattern"], ""), "a pattern has 1 to 1000 characters"),
    "pattern long": (with_(["pattern"], "a" * 1001), "a pattern has 1 to 1000 characters"),
    "pattern open": (with_(["pattern"], "("), "pattern is not RE2"),
    "pattern looks ahead": (with_(["pattern"], "(?=a)"), "pattern is not RE2"),
    "pattern refers back": (with_(["pattern"], r"(a)\1"), "pattern is not RE2"),
    "pattern repeats too much": (with_(["pattern"], "((a{100}){100}){100}"), "pattern is not RE2"),
    "answer missing": (with_(["answer"], None), "answer is missing"),
    "steps missing": (with_(["steps"], None), "steps is missing"),
    "steps empty": (with_(["steps"], []), "1 to 50 steps are needed"),
    "steps many": (with_(["steps"], [{"ability": "echo"}] * 51), "1 to 50 steps are needed"),
    "step no mapping": (with_(["steps"], ["echo"]), "step s1: a mapping with ability, args, description, optional is"),
    "ability missing": (with_(["steps", 0, "ability"], None), "step s1: ability is missing"),
    "args no mapping": (with_(["steps", 0, "args"], []), "step s1: args has to be a mapping"),
    "optional no boolean": (with_(["steps", 0, "optional"], "yes"), "step s1: optional has to be a boolean"),
    "answer of no paragraphs": (with_(["answer"], []), "answer has to be a text, or a list of texts with at least one"),
    "paragraph no text": (with_(["answer"], ["a", 1]), "answer has to be a text, or a list of texts"),
    "unknown group in a paragraph": (with_(["answer"], ["a", "${nam}"]), "answer: ${nam} is no group of the pattern"),
    "misspelt": (with_(["anwser"], "x"), "'anwser' is not known; known are pattern, steps, answer"),
    "unknown group": (with_(["answer"], "${nam}"), "answer: ${nam} is no group of the pattern; its groups: name"),
    "unknown group in args": (with_(["steps", 0, "args"], {"a": [{"b": "${x}"}]}), "step s1: ${x} is no group"),
    "step 0": (with_(["answer"], "${steps.0/text}"), "${steps.0/text} is no group"),
    "later step": (with_(["answer"], "${steps.2/text}"), "answer: ${steps.2/text} is not the result of an earlier"),
    "own step": (with_(["steps", 0, "args"], {"text": "${steps.1/a}"}), "step s1: ${steps.1/a} is not the result of"),
    "result in a description": (
        with_(["steps", 0, "description"], "${steps.1/a}"),
        "step s1: description: ${steps.1/a} is not the result of an earlier step",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_wrong_rule_is_refused_with_place_and_reason(skill, hello, change, message):
    change(hello)
    with pytest.raises(Failed) as caught:
        rules_of(skill(hello))
    assert caught.value.code == "SOURCE_INVALID"
    assert message in str(caught.value)


def test_wrong_rule_is_refused_even_where_an_earlier_one_fits(skill, hello):
    wrong = {**copy.deepcopy(hello), "pattern": "("}
    with pytest.raises(Failed, match="rule 2 of skill greet"):
        fit(skill(hello, wrong), "say hello to Ada")


@pytest.mark.parametrize("ours", ["text", {"rules": "text"}, {"rules": {"pattern": "a"}}, {"rules": ["r"] * 101}])
def test_rules_that_are_no_list_are_refused(ours):
    with pytest.raises(Failed, match=r"metadata\.deedbook\.rules of skill s: a list of at most 100 rules"):
        rules_of({"name": "s", "description": "", "metadata": {"deedbook": ours}})


def test_first_rule_that_fits_is_taken(skill, hello):
    other = {**copy.deepcopy(hello), "pattern": "(?P<name>A)"}
    found = fit(skill(other, hello), "say hello to Ada")
    assert (found.rule.place, found.groups) == ("rule 1 of skill greet", {"name": "A"})


def test_pattern_is_searched_anywhere_in_the_request(skill, hello):
    assert fit(skill(hello), "well, say HELLO to Ada!").groups == {"name": "Ada"}


def test_groups_may_hold_any_letters(skill, hello):
    hello["pattern"] = r"to (?P<name>\pL+)"
    assert fit(skill(hello), "Grüße to Зоя 🎉").groups == {"name": "Зоя"}


def test_pattern_with_nested_quantifiers_is_answered_at_once(skill, hello):
    hello["pattern"] = "^(?P<name>(a+)+)$"
    with pytest.raises(Failed) as caught:
        fit(skill(hello), "a" * 50_000 + "!")
    assert caught.value.code == "NO_RULE"
