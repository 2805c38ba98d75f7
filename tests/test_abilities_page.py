"""docs/abilities.md: its abilities bind as they stand there, and it has every setting that the tools take."""

import re

import pytest
from commandline import Place
from test_docs import DOCS

from deedbook.plugins.plugins import discover, load
from deedbook_testing.pages import blocks

PAGE = DOCS / "abilities.md"
SHOWN = [block for block in blocks(PAGE) if block.language == "yaml"]
SETTINGS = """\
    schema_version: v1
    secrets: {gh: {env: GITHUB_TOKEN}}
    abilities:
      file-find: {summary: Find files by a pattern., handler: {tool: file-find}}
      file-count: {summary: Count lines and words., handler: {tool: file-count}}
    """


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    made.env["GITHUB_TOKEN"] = "a token for tests"
    made.system("deedbook.yaml", SETTINGS)
    for block in SHOWN:
        made.write(re.fullmatch(r"# (\.system/\S+)", block.first)[1], block.text)
    return made


def test_every_ability_of_the_page_binds(place):
    found = place.here("registry", "lint", "--json", status=0).json
    assert {"git-log", "issue-comment", "count-matches"} <= set(found["abilities"])


def test_sequence_of_the_page_does_what_it_says(place):
    place.write("notes/a.md", "three short words\n")
    place.write("notes/b.md", "two words\n")
    ran = place.here("call", "count-matches", "--args", '{"pattern": "notes/*.md"}', status=0)
    assert '"words": 5' in ran.out
    assert place.types().count("tool.call") == 3


@pytest.mark.parametrize("name", ["process", "http", "sequence"])
def test_page_has_every_setting_of_the_tool(name):
    part = PAGE.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    table = part.partition("| setting | means |")[2].partition("\n\n")[0]
    spec = load(discover().find("tool", name)).spec
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == set(spec.settings["properties"])
