"""The arguments of a call on the command line: JSON, a file of it, or words."""

import json

import pytest
from commandline import Place

SETTINGS = """\
schema_version: v1
abilities:
  echo: {summary: Echo a text back., handler: {tool: echo}}
  add:
    summary: Add two numbers.
    handler: {tool: process}
    effects: read
    with: {argv: [expr, "{a}", +, "{b?}"]}
    schema_in: {type: object, required: [a], properties: {a: {type: integer}, b: {type: integer}}}
    schema_out: true
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("arguments"))
    made.write(".system/deedbook.yaml", SETTINGS)
    made.write("args.json", '{"text": "from a file"}')
    return made


GOOD = {
    "a word": (["text=hi"], "hi"),
    "an empty word": (["text="], ""),
    "a word with an equals sign": (["text=a=b"], "a=b"),
    "a word that looks like JSON": (["text=5"], "5"),
    "JSON": (['text:="hi"'], "hi"),
    "a file": (["--args", "@args.json"], "from a file"),
}


@pytest.mark.parametrize("how", GOOD)
def test_arguments_reach_the_ability_as_they_were_given(place, how):
    words, text = GOOD[how]
    assert json.loads(place.here("call", "echo", *words, status=0).out) == {"text": text}


BAD = {
    "no key": (["=hi"], "is neither KEY=TEXT nor KEY:=JSON"),
    "no value": (["text"], "is neither KEY=TEXT nor KEY:=JSON"),
    "twice": (["text=a", "text=b"], "is given twice"),
    "no JSON": (["text:=hi"], "text"),
    "a doubled key": (['text:={"a": 1, "a": 2}'], "text"),
    "both forms": (["text=a", "--args", "{}"], "give the arguments once"),
    "no file": (["--args", "@nowhere.json"], "nowhere.json cannot be read: No such file or directory"),
    "a folder": (["--args", "@."], "cannot be read: Is a directory"),
}


@pytest.mark.parametrize("how", BAD)
def test_arguments_that_cannot_be_read_begin_nothing(place, how):
    words, why = BAD[how]
    before = place.sessions()
    assert why in place.here("call", "echo", *words, status=2).err
    assert place.sessions() == before


def test_explain_and_tasks_take_words_too(place):
    assert "outcome    allow" in place.here("explain", "echo", "text=hi", status=0).out
    assert place.here("tasks", "create", "echo", "text=hi", status=0).out.startswith("t-")


@pytest.mark.parametrize("command", ["call", "explain"])
def test_word_that_should_be_no_string_is_followed_by_how_its_json_is_given(place, command):
    ran = place.here(command, "add", "a=1", "b:=2")
    assert "$.a: expected integer, found string" in ran.out + ran.err
    assert "a=1 gives a string; a:=1 gives JSON" in ran.out + ran.err
    ran = place.here(command, "add", "--args", '{"a": "1"}')
    assert "gives a string" not in ran.out + ran.err


def test_what_two_schemas_find_wrong_alike_is_said_once(place):
    ran = place.here("call", "add", "--args", "[1]", status=1)
    assert ran.err.count("$: expected object, found array") == 1
