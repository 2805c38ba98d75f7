"""Strict YAML and front matter: what is accepted means one thing, what is refused says where and why."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from deedbook.contract.hidden import show_hidden
from deedbook.contract.pointers import join_pointer
from deedbook.format import canonical
from deedbook.format.errors import SourceError
from deedbook.workspace import documents
from deedbook.workspace.documents import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse_front_matter, parse_yaml


@pytest.fixture(params=["libyaml", "pure"])
def parser(request, monkeypatch):
    """Run a test with each of the two parsers: which one there is depends on the installation."""
    if request.param == "pure":
        monkeypatch.setattr(documents, "CParser", None)
    elif documents.CParser is None:
        pytest.skip("ruamel.yaml.clib is not installed")
    return request.param


def read(text: str | bytes):
    return parse_yaml(text.encode() if isinstance(text, str) else text, "f.yaml").value


def refusals(text: str | bytes) -> list[str]:
    with pytest.raises(SourceError) as caught:
        read(text)
    assert {error.code for error in caught.value.errors} == {"SOURCE_INVALID"}
    assert all(str(error).isprintable() for error in caught.value.errors)
    return [str(error) for error in caught.value.errors]


# --- what is accepted -------------------------------------------------------------------------------------------------


@for_each(
    ("text", "value"),
    [
        ("a: 1\nb: [x, 'y', \"z\"]\n", {"a": 1, "b": ["x", "y", "z"]}),
        ("a: 1\r\nb:\r\n  - x\r\n", {"a": 1, "b": ["x"]}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("# a comment\n\n- 1\n", [1]),
        ("- ~\n-\n- null\n- 'null'\n- ''\n", [None, None, None, "null", ""]),
        ("- true\n- False\n- yes\n- no\n- on\n- NO\n", [True, False, "yes", "no", "on", "NO"]),
        ("- 0\n- -7\n- 1.50\n- 1e3\n- -2.5E-3\n", [0, -7, 1.5, 1000.0, -0.0025]),
        ("- '0777'\n- '2001-01-01'\n- '1e999'\n- 10:30\n- 1.2.3\n- v1\n- -x\n", None),
        ("- |\n  two\n  lines\n- >\n  folded\n  text\n", ["two\nlines\n", "folded text\n"]),
        ('- "\\u00e9\\t\\x41"\n- é\n- 😀\n', ["é\tA", "é", "😀"]),
        ("'<<': 1\n\"1\": 2\n", {"<<": 1, "1": 2}),
        ("{a, b: c}\n", {"a": None, "b": "c"}),
        (f"- {canonical.MAX_INTEGER}\n- -{canonical.MAX_INTEGER}\n", [canonical.MAX_INTEGER, -canonical.MAX_INTEGER]),
    ],
)
def test_yaml_that_is_json_with_comments_is_read(parser, text, value):
    expected = ["0777", "2001-01-01", "1e999", "10:30", "1.2.3", "v1", "-x"] if value is None else value
    assert read(text) == expected


def test_an_integer_stays_an_integer_and_a_float_a_float(parser):
    assert [type(item) for item in read("[1, 1.0, true, '1']")] == [int, float, bool, str]


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED = [
    ("a: &x 1", "1:4", "anchor"),
    ("a: 1\nb: *a", "2:4", "alias"),
    ("a: !!python/object/apply:os.system [id]", "1:4", "tag"),
    ("a: !<tag:example.org,2026:x> 1", "1:4", "tag"),
    ("! a: 1", "1:1", "tag"),
    ("a: !x%1b%0a 1", "1:4", "tag"),
    ("a: !!binary aGk=", "1:4", "tag"),
    ("!!set {a, b}", "1:1", "tag"),
    ("%YAML 1.1\n---\na: no", "", "directive"),
    ("%TAG !e! tag:example.org,2026:\n---\na: 1", "", "directive"),
    ("a: 1\n---\nb: 2", "2:1", "second document"),
    ("<<: {a: 1}\nb: 2", "1:1", "merge key"),
    ("a: <<", "1:4", "merge key"),
    ("a: 1\nb: 2\na: 3", "3:1", "'a' appears twice"),
    ("{a: 1, a: 2}", "1:8", "'a' appears twice"),
    ("a: 2001-01-01", "1:4", "different things"),
    ("a: 2001-01-01T10:00:00Z", "1:4", "different things"),
    ("a: 2001-01-01 10:00:00", "1:4", "different things"),
    ("a: .nan", "1:4", "different things"),
    ("a: -.inf", "1:4", "different things"),
    ("a: 0777", "1:4", "different things"),
    ("a: 0o17", "1:4", "different things"),
    ("a: 0x1F", "1:4", "different things"),
    ("a: 1_000", "1:4", "different things"),
    ("a: +1", "1:4", "different things"),
    ("a: 1.", "1:4", "different things"),
    ("a: .5", "1:4", "different things"),
    ("a: 1e400", "1:4", "beyond what JSON carries"),
    ("a: 1e20", "1:4", "beyond what JSON carries"),
    ("a: 9007199254740992", "1:4", "beyond what JSON carries"),
    ("a: " + "9" * 6000, "1:4", "beyond what JSON carries"),
    ("1: a", "1:1", "not a string"),
    ("~: a", "1:1", "not a string"),
    ("true: a", "1:1", "not a string"),
    ("? [a]\n: 1", "1:3", "not a string"),
    ("? {a: 1}\n: 1", "1:3", "not a string"),
    ('a: "\\ud800"', "1:", ""),
    ('a: "\\U00110000"', "1:", ""),
    ("a:\n\tb: 1", "2:1", "not YAML"),
    ("a: b: c", "1:5", "not YAML"),
    ("a: [1, 2", "", "not YAML"),
    ("a: 'open", "", "not YAML"),
    ("", "1:1", "empty"),
    ("# only a comment\n", "1:1", "empty"),
    ("\ufeffa: 1", "1:1", "byte order mark"),
    ("a: x\x00y", "1:5", "U+0000"),
    ("a: x\n# \x1b[2J", "2:3", "U+001B"),
    ("# a\x85b: 1", "1:4", "U+0085"),
    ("# a\u2028b: 1", "1:4", "U+2028"),
]


@for_each(("text", "place", "why"), REFUSED)
def test_yaml_that_is_not_json_is_refused_with_its_place(parser, text, place, why):
    (said,) = refusals(text)
    assert said.startswith(f"f.yaml:{place}")
    assert why in said


@pytest.mark.parametrize(
    "text", ["a: it: is", "a: 1\nb\nc: 2", "a: {b: it: is, c: d}", "a:\n  - x\n b: 2", "a: [1, 2\nb: 3"]
)
def test_parser_that_was_misled_before_it_stopped_is_not_taken_at_its_word(parser, text):
    (said,) = refusals(text)
    assert said.endswith("; the mistake may be on the line before; a text with a colon needs quotes")


@pytest.mark.parametrize("raw", [b"a: \xff", "a: 1".encode("utf-16"), b"\xed\xa0\x80", b"a: \xc3"])
def test_bytes_that_are_not_utf8_are_refused(raw):
    (said,) = refusals(raw)
    assert "not UTF-8" in said


def test_bad_bytes_have_a_place_too():
    assert refusals("a: 1\né: ".encode() + b"\xff") == ["f.yaml:2:4: not UTF-8 text"]


def test_all_faults_of_a_file_are_reported_together(parser):
    found = refusals("a: &x 1\nb: *x\nb: 0777\n1: !!str c\n<<: 2001-01-01\n")
    places = [re.match(r"f\.yaml:(\d+)", said)[1] for said in found]
    assert places == ["1", "2", "3", "3", "4", "4", "5", "5"]


def test_an_alias_bomb_is_refused_at_its_anchors(parser):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30)]
    assert any("alias" in said for said in refusals("\n".join(lines)))


def test_a_merge_bomb_is_refused(parser):
    lines = ["m0: &m0 {a: 1}"] + [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}" for n in range(1, 25)]
    assert any("merge key" in said for said in refusals("\n".join(lines)))


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_a_file_of_64_kib_is_read_and_a_larger_one_refused():
    start = "a: '"
    text = start + "x" * (MAX_BYTES - len(start) - 1) + "'"
    assert len(read(text)["a"]) == MAX_BYTES - 5
    assert "at most 65536" in refusals(text + " ")[0]


def test_sixteen_levels_are_read_and_seventeen_refused(parser):
    assert json.dumps(read("[" * MAX_DEPTH + "]" * MAX_DEPTH)) == "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert refusals("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == ["f.yaml:1:17: more than 16 levels"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_without_end_is_refused_where_it_passes_the_limit(parser, opening):
    assert any("more than 16 levels" in said for said in refusals(opening * (60_000 // len(opening))))


def test_five_thousand_values_are_read_and_one_more_refused():
    assert len(read("[" + "1," * (MAX_NODES - 1) + "]")) == MAX_NODES - 1
    assert "more than 5000 values" in refusals("[" + "1," * MAX_NODES + "]")[-1]


# --- laws -------------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")), max_size=20).map(show_hidden)
NUMBERS = st.integers(-canonical.MAX_INTEGER, canonical.MAX_INTEGER) | st.floats(-1e15, 1e15)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_is_read_as_what_it_is(value):
    assert read(json.dumps(value, ensure_ascii=False)) == value


@given(st.text("ab10.-+:,#&*!|>%@`'\"\\?~=<_[]{} \n\te", max_size=24))
def test_what_is_accepted_means_the_same_to_another_reader(text):
    """The other reader is ruamel's own safe loader."""
    try:
        value = read(text)
    except SourceError:
        return
    assert value == YAML(typ="safe").load(text)
    canonical.encode(value)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw):
    for parse in (parse_yaml, parse_front_matter):
        with suppress(SourceError):
            parse(raw, "f")
            parse(b"---\n" + raw + b"\n---\n", "f")


# --- places -----------------------------------------------------------------------------------------------------------

POLICY = """\
# a comment
kind: rules
rules:
  - match: {effects: [none]}
    then: allow
  -
    then: deny
a/b~c: {x: 1}
"""


@pytest.mark.parametrize(
    ("at", "place", "key", "line"),
    [
        ("", "2:1", "2:1", 2),
        ("/kind", "2:7", "2:1", 2),
        ("/rules", "4:3", "3:1", 3),
        ("/rules/0", "4:5", "4:5", 4),
        ("/rules/0/match/effects/0", "4:23", "4:23", 4),
        ("/rules/1", "7:5", "7:5", 7),
        ("/rules/1/then", "7:11", "7:5", 7),
        ("/a~1b~0c/x", "8:12", "8:9", 8),
        ("/rules/0/nothing", "4:5", "4:5", 4),
        ("/nothing/at/all", "2:1", "2:1", 2),
    ],
)
def test_a_pointer_leads_to_the_place_in_the_file(parser, at, place, key, line):
    document = parse_yaml(POLICY.encode(), "p.yaml")
    assert document.place(at) == f"p.yaml:{place}"
    assert document.place(at, key=True) == f"p.yaml:{key}"
    assert document.line(at) == f"p.yaml:{line}"


@given(st.dictionaries(st.text("abc/~é", min_size=1, max_size=6), st.lists(st.sampled_from("xyz"), max_size=3)))
def test_the_place_of_every_key_is_where_the_key_stands(value):
    text = "".join(f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(items)}\n" for key, items in value.items())
    document = parse_yaml((text or "{}").encode(), "f")
    for key in value:
        _, line, column = document.place(join_pointer(key), key=True).split(":")
        rest = text.split("\n")[int(line) - 1][int(column) - 1 :]
        assert rest.startswith(json.dumps(key, ensure_ascii=False))


def test_a_document_knows_the_digest_of_its_bytes():
    assert parse_yaml(b"a: 1\r\n", "f").digest == canonical.digest(b"a: 1\r\n")


# --- front matter -----------------------------------------------------------------------------------------------------


def test_front_matter_and_body_are_told_apart():
    document, body = parse_front_matter(b"---\nname: greet\n---\n# Greet\n\n---\nmore\n", "SKILL.md")
    assert document.value == {"name": "greet"}
    assert body == "# Greet\n\n---\nmore\n"
    assert document.place("/name") == "SKILL.md:2:7"


def test_front_matter_with_crlf_is_read_and_the_body_is_left_as_it_is():
    document, body = parse_front_matter(b"---\r\nname: greet\r\n---\r\nHello\r\n", "SKILL.md")
    assert document.value == {"name": "greet"}
    assert body == "Hello\r\n"


@pytest.mark.parametrize("text", ["", "# Title\n", "\n---\na: 1\n---\n", "----\na: 1\n----\n", " ---\na: 1\n---\n"])
def test_markdown_without_front_matter_is_all_body(text):
    document, body = parse_front_matter(text.encode(), "f.md")
    assert (document.value, body) == ({}, text)


@pytest.mark.parametrize("inner", ["", "\n", "# a comment\n"])
def test_front_matter_without_keys_is_an_empty_mapping(inner):
    document, body = parse_front_matter(f"---\n{inner}---\nbody".encode(), "f.md")
    assert (document.value, body) == ({}, "body")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("---\nname: greet\n", "f.md:1:1: the front matter has no end"),
        ("---\n- a\n---\n", "f.md:2:1: the front matter is not a mapping"),
        ("---\na: 1\nb: *a\n---\n", "f.md:3:4: an alias"),
        ("---\na: 1\n---\n\x1b[2J", "f.md:4:1: the character U+001B"),
    ],
)
def test_bad_front_matter_is_refused_with_its_place_in_the_file(text, said):
    with pytest.raises(SourceError, match=re.escape(said)):
        parse_front_matter(text.encode(), "f.md")


def test_every_workspace_file_of_the_repository_is_read():
    found = sorted((Path(__file__).parent.parent / ".system").rglob("*.yaml"))
    assert found
    assert all(isinstance(parse_yaml(path.read_bytes(), path.name).value, dict) for path in found)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n  when: args.x == args.yy\n", "2:24"),
        ("a:\n  when: 'args.x == args.yy'\n", "2:25"),
        ('a: {when: "args.x == \\"\\" && args.yy"}\n', "1:35"),
        ("a:\n  when: |\n    args.x ==\n    args.yy\n", "4:10"),
        ("a:\n  when: >-\n    args.x\n    == args.yy\n", "4:13"),
        ("# args.yy\na:\n  yy: args.yy\n  when: args.yy\n", "4:14"),
        ('a: {when: "args.\\x79y"}\n', "1:11"),
    ],
)
def test_a_word_inside_a_text_has_a_place_however_the_text_is_written(text, place):
    document = parse_yaml(text.encode(), "x.yaml")
    value = document.value["a"]["when"]
    assert document.within("/a/when", value.index("yy")) == f"x.yaml:{place}"
    assert document.within("/a/when", len(value)) == document.place("/a/when")
