"""Members of a YAML text, added and removed: the rest stays, byte by byte where that can be."""

import string

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.errors import DeedbookError
from deedbook.workspace.documents import parse_yaml
from deedbook_author.yaml_edits import add_member, remove_member

BODY = {"command": ["uvx", "mcp-server-git", "--x=y", "a b", "yes", "1", ""], "env": {"K": {"secret": "gh"}, "L": "#"}}
STYLES = [
    "schema_version: v1\n",
    "schema_version: v1",
    "# a comment\nschema_version: v1   # why\n\npolicies: {a: {kind: rules}}   # kept\n# the end\n",
    "schema_version: v1\nservers:\n  old:\n    command: [x]   # kept\n  # about old\nlock: auto\n",
    "schema_version: v1\nservers:\n    old: {command: [x]}\n    # below\n",
    "schema_version: v1\nservers: {}\nlock: auto\n",
    "schema_version: v1\nservers: {old: {command: [x]}}   # flow\n",
    "servers:\n\n  # first\n  old: {url: 'http://x'}\nschema_version: v1\n",
    "{schema_version: v1, servers: {old: {command: [x]}}}\n",
    '{"schema_version": "v1"}',
    "schema_version: v1\r\nlock: auto\r\n",
]


def read(text):
    return parse_yaml(text.encode(), "x.yaml").value


@for_each("text", STYLES)
def test_entry_is_put_in_and_everything_else_says_what_it_said(text):
    made = add_member(text, ("servers",), "git", BODY, "x.yaml")
    meant = read(text)
    assert read(made) == {**meant, "servers": {**(meant.get("servers") or {}), "git": BODY}}
    assert text.count("#") <= made.count("#")


@for_each("text", STYLES)
def test_entry_that_is_put_in_and_taken_out_leaves_what_was_there(text):
    back = remove_member(add_member(text, ("servers",), "git", BODY, "x.yaml"), ("servers",), "git", "x.yaml")
    meant = read(text)
    assert read(back) == {key: value for key, value in meant.items() if key != "servers" or value}


@pytest.mark.parametrize("text", STYLES[2:5])
def test_lines_of_others_stay_as_they_are(text):
    made = add_member(text, ("servers",), "git", BODY, "x.yaml")
    rest = iter(made.splitlines())
    assert all(line in rest for line in text.splitlines()), "the old lines, in their order"
    assert remove_member(made, ("servers",), "git", "x.yaml").strip() == text.strip()


WORDS = st.text(st.sampled_from(string.printable + "é\u2028\U0001f600"), min_size=1, max_size=12)


@given(
    command=st.lists(WORDS, min_size=1, max_size=4),
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True),
)
def test_whatever_a_command_says_it_is_written_so_that_it_is_read_again(command, name):
    body = {"command": command}
    try:
        made = add_member(STYLES[2], ("servers",), name, body, "x.yaml")
    except DeedbookError:
        return  # what YAML cannot hold is refused, and nothing is written
    assert read(made)["servers"] == {name: body}


def test_entry_that_is_there_already_is_refused():
    with pytest.raises(DeedbookError, match='servers: has an entry "old" already'):
        add_member(STYLES[3], ("servers",), "old", BODY, "x.yaml")


def test_lines_of_a_windows_editor_stay_such_lines():
    text = "schema_version: v1\r\nservers:\r\n  old:\r\n    command: [x]  # c\r\nlock: auto\r\n"
    made = add_member(text, ("servers",), "git", BODY, "x.yaml")
    assert made.count("\n") == made.count("\r\n") > text.count("\n")
    assert remove_member(made, ("servers",), "git", "x.yaml") == text


def test_comment_with_a_brace_does_not_end_an_object():
    text = "servers: {old: {command: [x]}, # the first }\n  b: {command: [y]} }\n"
    made = add_member(text, ("servers",), "git", BODY, "x.yaml")
    assert made.startswith(text.rstrip(" }\n"))
    assert read(made)["servers"]["git"] == BODY


def test_edit_that_would_lose_a_comment_is_refused():
    with pytest.raises(DeedbookError, match="change it by hand"):
        add_member("---\nschema_version: v1\n...\n# after\n", ("servers",), "git", BODY, "x.yaml")


@pytest.mark.parametrize("text", ["servers: {other: 1}\n", "servers: {}\n", "servers:\n", "lock: auto\n", "[]\n"])
def test_member_that_is_not_there_is_not_removed(text):
    with pytest.raises(DeedbookError, match=r'servers: has no entry "old"|servers is no object'):
        remove_member(text, ("servers",), "old", "x.yaml")


@pytest.mark.parametrize("text", ["null\n", "[]\n", "servers: [a]\n", "servers: a\n"])
def test_member_of_what_is_no_object_is_refused(text):
    with pytest.raises(DeedbookError, match="is no object"):
        add_member(text, ("servers",), "git", BODY, "x.yaml")


def test_what_is_no_yaml_is_refused_with_its_place():
    with pytest.raises(DeedbookError, match=r"x\.yaml:2:1: not YAML"):
        add_member("a: [\n", ("servers",), "git", BODY, "x.yaml")


@pytest.mark.parametrize(
    ("text", "parent"),
    [
        ("a: {b: {}}\n", ("a", "b")),
        ("a:\n  b:\n    c: |\n      text\n\n# end\nz: 1", ("a", "b")),
        ("a:\n  b: {c: 1}   # one\n", ("a", "b")),
        ("# only\nz: 1\n", ()),
        ("a:\n   b: {c: '}', \"d\": [1, {e: 2}]}   # }\n   z: 1\n", ("a", "b")),
        ("a: {b: {c: 1,\n  d: 2}}\n", ("a", "b")),
        ('"a":\n  "b":\n    - 1\n    - 2\n', ("a",)),
        ("a:\n- 1\n", ()),
    ],
)
def test_member_is_added_to_every_style_of_yaml(text, parent):
    value = {"on": ["yes", 1.5, None, "a: b", "-", "é # 1"], "2": {"long": "word " * 30, "deep": {"er": {}}}}
    made = add_member(text, parent, "new", value, "a.yaml")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in made.splitlines() if line.startswith("#")
    ]
    assert "   z: 1" not in text or "   z: 1" in made
    there = parse_yaml(made.encode(), "a.yaml").value
    for key in parent:
        there = there[key]
    assert there["new"] == value
