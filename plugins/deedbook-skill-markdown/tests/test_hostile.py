"""Front matter that is wrong or hostile, and files that are not what they seem: refused, with file, line and reason."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook import Failed
from deedbook_skill_markdown.frontmatter import MAX_BODY, MAX_BYTES, MAX_FILE, read

# --- wrong front matter -----------------------------------------------------------------------------------------------

WRONG = {
    "name missing": ("description: d", "1: name: a text of 1 to 64 characters is needed"),
    "name of another": ("name: greet\ndescription: d", "2: name: greet stands in the folder a"),
    "name outside": ("name: ../../etc\ndescription: d", "2: name: '../../etc' is not lower-case"),
    "name empty": ("name: ''\ndescription: d", "2: name: a text"),
    "name in capitals": ("name: A\ndescription: d", "2: name: 'A' is not lower-case"),
    "name with a look-alike": ("name: \u0430\ndescription: d", "is not lower-case"),
    "name with a newline": ('name: "a\\n"\ndescription: d', "is not lower-case"),
    "name with an end hyphen": ("name: a-\ndescription: d", "is not lower-case"),
    "name with two hyphens": ("name: a--b\ndescription: d", "is not lower-case"),
    "name too long": (f"name: {'a' * 65}\ndescription: d", "a text of 1 to 64"),
    "name is a list": ("name: [a]\ndescription: d", "a text of 1 to 64"),
    "description missing": ("name: a", "1: description: a text of 1 to 1024"),
    "description blank": ("name: a\ndescription: '  '", "3: description: a text"),
    "description too long": (f"name: a\ndescription: {'d' * 1025}", "3: description: a text"),
    "trigger star": ("name: a\ndescription: d\ntriggers: ['*']", "4: triggers: trigger '*' would fit anything"),
    "trigger empty": ("name: a\ndescription: d\ntriggers: ['']", "4: triggers: '' is not a text"),
    "trigger blank": ("name: a\ndescription: d\ntriggers: [' ']", "is not a text"),
    "trigger dot": ("name: a\ndescription: d\ntriggers: ['.']", "would fit anything"),
    "trigger number": ("name: a\ndescription: d\ntriggers: [1]", "1 is not a text"),
    "trigger with a newline": ('name: a\ndescription: d\ntriggers: ["a\\nb"]', "printable"),
    "trigger with an escape": ('name: a\ndescription: d\ntriggers: ["\\e[2Ja"]', "the character U+001B (ESCAPE)"),
    "trigger too long": (f"name: a\ndescription: d\ntriggers: [{'a' * 101}]", "printable"),
    "triggers as a text": ("name: a\ndescription: d\ntriggers: hello", "4: triggers: a list"),
    "triggers null": ("name: a\ndescription: d\ntriggers:", "4: triggers: a list"),
    "triggers twice": ("name: a\ndescription: d\ntriggers: [x]\nmetadata: {triggers: [y]}", "keep one"),
    "triggers many": (f"name: a\ndescription: d\ntriggers: {['x'] * 101}", "at most 100"),
    "metadata trigger star": ("name: a\ndescription: d\nmetadata: {triggers: 'x,*'}", "4: metadata: trigger '*'"),
    "metadata trigger empty": ("name: a\ndescription: d\nmetadata: {triggers: ','}", "not a text"),
    "tool star": ("name: a\ndescription: d\nallowed-tools: ['*']", "4: allowed-tools: '*' is no name"),
    "tool star in a text": ("name: a\ndescription: d\nallowed-tools: echo *", "'*' is no name"),
    "tool pattern alone": ("name: a\ndescription: d\nallowed-tools: (git:*)", "is no name"),
    "tool pattern open": ("name: a\ndescription: d\nallowed-tools: Bash(git:*", "is no name"),
    "tool pattern empty": ("name: a\ndescription: d\nallowed-tools: Bash()", "is no name"),
    "tool pattern twice": ("name: a\ndescription: d\nallowed-tools: Bash(a)(b)", "is no name"),
    "tool pattern nested": ("name: a\ndescription: d\nallowed-tools: Bash(a(b))", "is no name"),
    "tool glob": ("name: a\ndescription: d\nallowed-tools: [git/*]", "is no name"),
    "tool empty": ("name: a\ndescription: d\nallowed-tools: ['']", "'' is not a text"),
    "tools empty text": ("name: a\ndescription: d\nallowed-tools: ''", "'' is not a text"),
    "tools null": ("name: a\ndescription: d\nallowed-tools:", "a list"),
    "tools mapping": ("name: a\ndescription: d\nallowed-tools: {echo: true}", "a list"),
    "tool outside": ("name: a\ndescription: d\nallowed-tools: [../echo]", "is no name"),
    "manual is a text": ("name: a\ndescription: d\ndisable-model-invocation: x", "true or false"),
    "hooks of a skill": ("name: a\ndescription: d\nhooks: {}", "4: hooks: not a key"),
    "tools taken away": ("name: a\ndescription: d\ndisallowed-tools: Bash", "4: disallowed-tools: not a key"),
    "schema version": ("name: a\ndescription: d\nschema_version: v2", "4: schema_version: only v1"),
    "version": ("name: a\ndescription: d\nversion: [1]", "4: version: a whole number"),
    "licence": ("name: a\ndescription: d\nlicense: 1", "4: license: a text"),
    "metadata text": ("name: a\ndescription: d\nmetadata: x", "4: metadata: a mapping"),
    "version twice": ("name: a\ndescription: d\nversion: 1\nmetadata: {version: 2}", "4: version: stands here and"),
    "misspelt key": (
        "name: a\ndescription: d\nalowed-tools: [x]",
        "4: alowed-tools: not a key of a skill; did you mean",
    ),
    "foreign key": ("name: a\ndescription: d\nzzz: 1", "own settings belong under metadata"),
}


@pytest.mark.parametrize(("front", "message"), WRONG.values(), ids=WRONG)
def test_wrong_field_is_refused_with_line_and_reason(workspace, front, message):
    found = workspace.failure(front)
    assert found.startswith("skills/a/SKILL.md:")
    assert message in found


BOMB = "a: &a [x, x]\n" + "\n".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
HOSTILE = {
    "alias bomb": (BOMB, "2: an anchor (&a)"),
    "alias": ("name: a\ndescription: *x", "alias"),
    "merge key": ("name: a\n<<: {description: d}", "3: a merge key"),
    "python tag": ("name: a\ndescription: !!python/object/apply:os.system [touch hit]", "3: a tag"),
    "verbatim tag": ("name: !<tag:yaml.org,2002:str> a\ndescription: d", "2: a tag"),
    "binary": ("name: a\ndescription: !!binary aGk=", "3: a tag"),
    "directive": ("%YAML 1.1\nname: a", "SKILL.md:"),
    "second document": ("name: a\n...\nname: b", "SKILL.md:"),
    "duplicate key": ("name: a\nname: a\ndescription: d", "duplicate key"),
    "date": ("name: a\ndescription: 2024-01-01", "3: a date is not a JSON type"),
    "bad date": ("name: a\ndescription: 2024-99-99", "not YAML"),
    "infinity": ("name: a\ndescription: d\nmetadata: {x: .inf}", "4: inf is beyond"),
    "not a number": ("name: a\ndescription: d\nmetadata: {x: .nan}", "4: nan is beyond"),
    "big integer": ("name: a\ndescription: d\nmetadata: {x: 9007199254740993}", "beyond what JSON carries"),
    "6,000 digits": (f"name: a\ndescription: {'9' * 6000}", "SKILL.md:"),
    "number as a key": ("name: a\ndescription: d\nmetadata: {1: x}", "key 1 is not a string"),
    "null as a key": ("name: a\ndescription: d\nmetadata: {~: x}", "key None is not a string"),
    "list as a key": ("name: a\ndescription: d\n? [a]\n: x", "SKILL.md:"),
    "surrogate": ('name: a\ndescription: "\\ud800"', "SKILL.md:"),
    "astral escape too far": ('name: a\ndescription: "\\U00110000"', "SKILL.md:"),
    "deep": (f"name: a\ndescription: {'[' * 17}{']' * 17}", "more than 16 levels"),
    "very deep": (f"name: a\ndescription: {'[' * 20000}", "more than 16 levels"),
    "many values": (f"name: a\ndescription: [{'x,' * 5000}]", "5000 values"),
    "list": ("- name: a", "not a mapping"),
    "empty": ("", "not a mapping"),
    "tab": ("name: a\n\tdescription: d", "not YAML"),
    "open quote": ('name: "a\ndescription: d', "not YAML"),
    "escape character": ("name: a\ndescription: \x1b[2Jd", "3: the character U+001B"),
    "line separator hides a key": ("name: a\ndescription: d\u2028allowed-tools: [rm]", "3: the character U+2028"),
    "next line hides a key": ("name: a\ndescription: d\x85allowed-tools: [rm]", "3: the character U+0085"),
    "nul": ("name: a\ndescription: d\x00", "U+0000"),
}


@pytest.mark.parametrize(("front", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_refused(workspace, front, message):
    assert message in workspace.failure(front)


UNREADABLE = {
    "no front matter": (b"# Just text\n", "1: no front matter"),
    "empty file": (b"", "1: no front matter"),
    "front matter without an end": (b"---\nname: a\ndescription: d\n", "1: the front matter has no end"),
    "byte order mark": (b"\xef\xbb\xbf---\nname: a\ndescription: d\n---\n", "1: a byte order mark"),
    "UTF-16": ("---\nname: a\n---\n".encode("utf-16"), "1: not UTF-8"),
    "broken UTF-8": (b"---\nname: a\ndescription: \xff\n---\n", "3: not UTF-8"),
    "huge": (b"---\nname: a\ndescription: d\n---\n" + b"x" * MAX_FILE, "1: more than 589824 bytes"),
    "long text": (b"---\nname: a\ndescription: d\n---\n" + b"x" * (MAX_BODY + 1), "5: the text has more than 524288"),
    "long front matter": (
        b"---\nname: a\n#" + b"x" * MAX_BYTES + b"\n---\n",
        "1: the front matter has more than",
    ),
}


@pytest.mark.parametrize(("raw", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_file_that_is_no_skill_is_refused(workspace, raw, message):
    workspace.put("a", raw)
    (found,) = workspace.load()
    line, _, why = message.partition(":")
    assert str(found).startswith(f"skills/a/SKILL.md:{line}:1:{why}")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_place(raw):
    try:
        read(b"---\n" + raw + b"\n---\n", "f")
    except Failed as problem:
        outcome = f"{problem.code} {problem}"
    else:
        outcome = "read"
    assert outcome == "read" or outcome.startswith("SOURCE_INVALID f:")


# --- files that are not what they seem --------------------------------------------------------------------------------


@pytest.fixture
def folder(workspace):
    made = workspace.root / "skills" / "a"
    made.mkdir(parents=True)
    return made


def refused(workspace) -> Failed:
    (found,) = workspace.load()
    assert isinstance(found, Failed)
    assert str(found).startswith("skills/a/SKILL.md: cannot be read")
    return found


def test_fifo_is_refused_at_once(workspace, folder):
    os.mkfifo(folder / "SKILL.md")
    assert refused(workspace).code == "PATH_REFUSED"


def test_socket_is_refused(workspace, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("SKILL.md")
        assert refused(workspace).code == "PATH_REFUSED"


@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "nowhere", "SKILL.md"])
def test_link_is_refused_and_not_followed(workspace, folder, target):
    (folder / "SKILL.md").symlink_to(target)
    assert refused(workspace).code == "PATH_REFUSED"


def test_hard_link_to_a_file_outside_is_refused(workspace, folder):
    outside = workspace.root / "outside.md"
    outside.write_text("---\nname: a\ndescription: d\n---\n")
    os.link(outside, folder / "SKILL.md")
    assert refused(workspace).code == "PATH_REFUSED"


def test_folder_in_the_place_of_the_file_is_refused(workspace, folder):
    (folder / "SKILL.md").mkdir()
    assert refused(workspace).code == "PATH_REFUSED"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission_is_reported(workspace, folder):
    path = folder / "SKILL.md"
    path.write_text("---\nname: a\ndescription: d\n---\n")
    path.chmod(0)
    assert refused(workspace).code == "SOURCE_INVALID"


def test_folder_that_is_a_link_registers_nothing(workspace):
    outside = workspace.root / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text("---\nname: outside\ndescription: d\n---\n")
    (workspace.root / "skills").mkdir()
    (workspace.root / "skills" / "outside").symlink_to(outside)
    assert workspace.load() == []


def test_every_fault_of_a_file_is_yielded_with_its_line_and_column(workspace):
    workspace.put("a", "---\nname: b\ndescription: ''\n  \nallowed-tools: ['*']\ntriggers: [x, '*']\n---\n")
    assert [str(found).split(" ")[0] for found in workspace.load()] == [
        "skills/a/SKILL.md:2:1:",
        "skills/a/SKILL.md:3:1:",
        "skills/a/SKILL.md:5:1:",
        "skills/a/SKILL.md:6:1:",
    ]


def test_hostile_yaml_is_refused_with_its_column(workspace):
    workspace.put("a", "---\nname: &x a\n---\n")
    (found,) = workspace.load()
    assert str(found).startswith("skills/a/SKILL.md:2:7: an anchor")
