"""Skills held against the reference validator of the open Agent Skills form: what it takes we take, and vice versa."""

import json
import string

import pytest
from commandline import Place
from hypothesis import given
from hypothesis import strategies as st
from skills_ref import validate

from deedbook import Skill
from deedbook.format.files import Folder
from deedbook.plugins.host import WorkspaceHost
from deedbook.workspace.documents import parse_front_matter
from deedbook_author.spelling import front_matter_form, obstacles
from deedbook_author.starter import STARTER
from deedbook_skill_markdown import Markdown

KEYS = ("name", "description", "license", "compatibility", "allowed-tools", "metadata")
OPEN = """\
---
name: a
description: Does a.
license: MIT
compatibility: needs git
allowed-tools: echo file-read
metadata:
  triggers: do a, a
  version: "1.0"
---
# A
"""


def put(root, text, name="a"):
    folder = root / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


def ours(root):
    """Return what our loader makes of the only skill."""
    with Folder.at(root) as folder:
        (found,) = Markdown({"roots": ["skills"]}, WorkspaceHost(folder, [""], [], {}))()
    return found


def portable(text):
    return not obstacles(parse_front_matter(text.encode(), "SKILL.md")[0])


def test_the_open_form_is_taken_by_both_and_means_what_ours_means(tmp_path):
    assert validate(put(tmp_path, OPEN)) == []
    found = ours(tmp_path)
    assert (found.allowed, found.triggers, found.metadata["version"]) == ({"echo", "file-read"}, ("do a", "a"), "1.0")
    assert portable(OPEN)


OBSTACLES = {
    "a plugin at top level": ("license: MIT", "plugin: a", "4:1", "plugin: is no key of the open form"),
    "a form's version at top level": ("license: MIT", "schema_version: v1", "4:1", "put it under metadata"),
    "tools as a list": ("allowed-tools: echo file-read", "allowed-tools:\n  - echo", "6:1", "is a list"),
    "brackets": ("allowed-tools: echo file-read", "allowed-tools: [echo]", "6:1", "is a list"),
    "a number in metadata": ('version: "1.0"', "version: 1", "9:3", "metadata.version: is no text"),
    "nested metadata": ('version: "1.0"', "deedbook:\n    rules: none", "9:3", "metadata.deedbook: is no text"),
    "a line within": ("Does a.", "Does a --- b.", "3:21", "holds ---"),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_keeps_a_skill_from_being_portable_is_said_with_its_place(tmp_path, name):
    old, new, place, why = OBSTACLES[name]
    put(tmp_path, OPEN.replace(old, new))
    assert isinstance(ours(tmp_path), Skill)
    found = obstacles(parse_front_matter(OPEN.replace(old, new).encode(), "SKILL.md")[0])
    assert found[0].place == f"SKILL.md:{place}"
    assert why in found[0].why


@pytest.mark.parametrize("name", ["a plugin at top level", "a form's version at top level", "brackets"])
def test_what_the_reference_refuses_we_do_not_call_portable(tmp_path, name):
    old, new, *_ = OBSTACLES[name]
    assert validate(put(tmp_path, OPEN.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: a", "name: ä"),  # ids are ASCII, so that no two look alike
        ("echo file-read", '""'),  # an empty list is written by leaving the key out
    ],
)
def test_what_the_reference_takes_and_we_refuse_is_exactly_this(tmp_path, old, new):
    text = OPEN.replace(old, new)
    assert validate(put(tmp_path, text, new.removeprefix("name: ") if "name" in old else "a")) == []
    assert not isinstance(ours(tmp_path), Skill)


# --- generated --------------------------------------------------------------------------------------------------------

WORDS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=6)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map("-".join)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=40).filter(
    str.strip
)
ABILITIES = st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}(/[a-z]{1,3})?", fullmatch=True), max_size=4)
PLAIN = WORDS.filter(lambda word: word.isalpha() and word not in ("null", "true", "false"))
"""Keys that are text without quotes, too."""
VALUES = st.one_of(TEXTS, st.integers(-99, 99), st.booleans(), st.lists(TEXTS, max_size=2))


@st.composite
def front_matters(draw):
    """Draw front matter, mostly good: texts quoted as JSON, which YAML reads alike."""
    name = draw(NAMES)
    said = {"name": name, "description": draw(TEXTS)}
    if draw(st.booleans()):
        tools = draw(ABILITIES)
        said["allowed-tools"] = draw(st.sampled_from([" ".join(tools) or "echo", tools]))
    if draw(st.booleans()):
        said["metadata"] = draw(st.dictionaries(PLAIN, VALUES, min_size=1, max_size=3))
    for key in draw(
        st.sets(st.sampled_from(["license", "compatibility", "version", "plugin", "triggers"]), max_size=2)
    ):
        said[key] = draw(TEXTS)
    return name, said


def written(said, *, flow):
    lines = []
    for key, value in said.items():
        if isinstance(value, dict) and not flow:
            lines += [
                f"{key}:",
                *(f"  {inner}: {json.dumps(each, ensure_ascii=False)}" for inner, each in value.items()),
            ]
        else:
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return "---\n" + "\n".join(lines) + "\n---\nBody.\n"


@given(front=front_matters(), flow=st.booleans())
def test_generated_skills_are_taken_alike(tmp_path_factory, front, flow):
    """What we call portable the reference takes; what the reference takes in our names we take."""
    name, said = front
    text = written(said, flow=flow)
    root = tmp_path_factory.mktemp("generated")
    folder = put(root, text, name)
    found, theirs = ours(root), validate(folder)
    if isinstance(found, Skill) and portable(text):
        assert theirs == [], text
    if not theirs:
        assert isinstance(found, Skill) or "trigger" in str(found), (text, found)


# --- the command ------------------------------------------------------------------------------------------------------


def test_lint_says_which_spelling_each_skill_has(place: Place):
    place.system("skills/a/SKILL.md", OPEN)
    rows = place.here("skills", "lint", "--json", status=0).fits("output_skills_v1")["skills"]
    assert [(row["name"], row["spelling"], row["portable"]) for row in rows] == [
        ("a", "open", True), ("fix", "own", False), ("greet", "own", False), ("survey", "own", False),
    ]  # fmt: skip
    said = place.here("skills", "lint", status=0).out
    assert ".system/skills/greet/SKILL.md:5:1: triggers: is no key of the open form; put it under metadata" in said


def test_list_and_show_say_what_a_skill_is(place: Place):
    listed = place.here("skills", status=0).out
    assert listed == place.here("skills", "list", status=0).out
    assert listed.splitlines()[1].split() == ["greet", "own", "workspace", "echo", "hello,", "hi,", "greet"]
    assert "# Greet" in place.here("skills", "show", "greet", status=0).out
    (row,) = place.here("skills", "show", "greet", "--json", status=0).fits("output_skills_v1")["skills"]
    assert row["body"].startswith("# Greet")
    missing = place.here("skills", "show", "gret", status=2).err
    assert "there is no skill 'gret'; did you mean \"greet\"?" in missing


def test_our_own_skills_are_what_lint_says_they_are():
    for path in sorted(STARTER.glob("skills/*/SKILL.md")):
        document, _ = parse_front_matter(path.read_bytes(), path.name)
        assert front_matter_form(document) == ("own" if set(document.value) - set(KEYS) else "open")
        assert bool(obstacles(document)) >= bool(validate(path.parent))
