"""``deedbook new plugin``: what it writes for each kind is built, installed, locked, used, and passes its own test.

The pages of docs/plugins show these very files, and the commands that are run here.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import packing
import pytest
from commandline import ROOT, Place
from test_docs import definitions

from deedbook.plugins.groups import ENTRY_POINTS
from deedbook_author.commands.parameters import KINDS
from deedbook_testing.pages import blocks

PAGES = ROOT / "docs" / "plugins"


@attrs.frozen
class Made:
    """A plugin of *kind* that was written, and the workspace that came with it."""

    kind: str
    name: str
    folder: Path
    place: Place

    def files(self):
        return {
            str(path.relative_to(self.folder)): path.read_text(encoding="utf-8")
            for path in sorted(self.folder.rglob("*"))
            if path.suffix in (".py", ".toml", ".md", ".yaml", ".json", ".jsonl")
        }

    @property
    def module(self):
        return next(path for path in self.files() if re.fullmatch(r"deedbook_\w+(\.py|/__init__\.py)", path))


NAMES = {
    "tool": "word-count",
    "provider": "canned",
    "flow": "one-answer",
    "hook": "keep-quiet",
    "policy": "quota",
    "skill": "listed",
    "pack": "calm",
    "feature": "call-count",
}
WORKS = {
    "tool": (["call", "word-count", "--args", '{"text": "three short words"}'], 0, '"words": 3'),
    "provider": (
        ["call", "model/standard", "--args",
         '{"messages": [{"role": "user", "content": "hi"}], "model": "mine", "schema_version": "v2"}'],
        0, "Hello from canned!",
    ),
    "flow": (["run", "Say hello"], 0, "Hello from one-answer!"),
    "hook": (["call", "echo", "--args", '{"text": "my password"}'], 3, "password may not be said"),
    "policy": (["call", "echo", "--args", '{"text": "hi"}'], 3, "0 of 0 calls are used"),
    "skill": (["skills"], 0, "greet"),
    "pack": (["call", "echo", "--args", '{"text": "hi"}'], 3, "no rule matches"),
    "feature": (["call", "echo", "--args", '{"text": "hi"}'], 0, '"text": "hi"'),
}  # fmt: skip
"""What is tried with each kind, its exit status, and what it says."""


def new(tmp_path, kind, name, status=0):
    tmp_path.mkdir(exist_ok=True)
    return Place(tmp_path).here(
        "new", "plugin", "--kind", kind, "--into", str(tmp_path / "projects"), "--", name, status=status
    )


@pytest.fixture(params=KINDS)
def made(request, tmp_path):
    kind, name = request.param, NAMES[request.param]
    new(tmp_path, kind, name)
    folder = tmp_path / "projects" / f"deedbook-{kind}-{name}"
    return Made(kind, name, folder, Place(folder / "example"))


def test_kinds_are_those_that_have_a_group():
    assert set(KINDS) == set(ENTRY_POINTS) == set(NAMES)
    assert set(KINDS) == {path.stem for path in PAGES.glob("*.md")} - {"README"}


# --- what it writes ---------------------------------------------------------------------------------------------------


def test_plugin_is_built_installed_locked_and_used(made):
    packing.install(made.place, packing.wheel(made.folder))
    made.place.write(".system/deedbook.yaml", made.files()["example/.system/deedbook.yaml"] + "lock: required\n")
    argv, status, says = WORKS[made.kind]
    assert "deedbook lock" in made.place.run("call", "echo", status=1).err  # nothing is pinned yet
    made.place.run("lock", "--editable", status=0)  # the tools of this checkout are installed in place
    ran = made.place.run(*argv, status=status)
    assert says in ran.out + ran.err
    if made.kind == "feature":  # what it does is seen in the session's ledger
        assert "x.call_count.counted  apollo, calls: 1" in made.place.run("tree", "last", status=0).out
    lock = (made.place.path / ".system/deedbook.lock").read_text()
    assert re.search(rf'deedbook-{made.kind}-{made.name}"?:[\s\S]*?[0-9a-f]{{64}}', lock)


@pytest.mark.campaign(keep=1)
def test_plugin_passes_its_own_test_once_it_is_installed(made):
    site = packing.install(made.place, packing.wheel(made.folder))
    around = made.folder.parent  # another project, such as a clone of this one, whose tests have nothing to do with it
    (around / "conftest.py").write_text('raise RuntimeError("this is the conftest of another project")\n')
    (around / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--an-option-of-another-project"\n')
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", made.folder],
        cwd=made.folder.parent,
        env={**os.environ, "PYTHONPATH": str(site), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert re.search(r"\d+ passed", tried.stdout)


def test_plugin_says_how_to_go_on(made, tmp_path):
    said = new(tmp_path / "again", made.kind, made.name).err.splitlines()
    folder = tmp_path / "again/projects" / made.folder.name
    argv, _, _ = WORKS[made.kind]
    assert said[:3] == ["next:", f"  pip install -e {folder}", f"  pytest {folder}"]
    assert said[3].startswith(f"  deedbook -C {folder}/example {argv[0]}")
    assert len(said) == 4


def test_plugin_is_small_and_one_project(made):
    project = tomllib.loads(made.files()["pyproject.toml"])
    assert project["project"]["name"] == made.folder.name
    assert list(project["project"]["entry-points"]) == [ENTRY_POINTS[made.kind]]
    assert list(project["project"]["entry-points"][ENTRY_POINTS[made.kind]]) == [made.name]
    lines = made.files()[made.module].splitlines()
    assert len(lines) <= (20 if made.kind == "tool" else 45)
    assert max(map(len, lines)) <= 120


def test_plugin_passes_the_linters_of_this_project(made):
    for path, text in made.files().items():
        if path.endswith(".py"):
            ast.parse(text)
    ruff = Path(sys.executable).with_name("ruff")
    argv = [ruff, "format", "--check", "--config", ROOT / "pyproject.toml", made.folder]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


# --- names, and what is there already ---------------------------------------------------------------------------------


WRONG = ("Word", "word_count", "word count", "-word", "word-", "a--b", "../up", "/abs", ".hidden", "wörd", "a" * 61,
         "1st", "a\n", "a.b")  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_name_that_no_plugin_may_have_is_refused(tmp_path, name):
    ran = new(tmp_path, "tool", name, status=2)
    assert "word-count" in ran.err
    assert not (tmp_path / "projects").exists()


@pytest.mark.parametrize("name", ["deedbook-tool-words", "tool-words"])
def test_name_that_holds_the_kind_is_refused_with_what_it_would_become(tmp_path, name):
    assert "deedbook-tool-words" in new(tmp_path, "tool", name, status=2).err


@pytest.mark.parametrize(
    ("kind", "name"),
    [("tool", "none"), ("tool", "host"), ("policy", "call"), ("skill", "iterator"), ("feature", "path")],
)
def test_name_that_python_or_the_contract_has_already_becomes_another_class(tmp_path, kind, name):
    new(tmp_path, kind, name)
    folder = tmp_path / f"projects/deedbook-{kind}-{name}"
    code = f"from deedbook_{kind}_{name} import {name.title()}Plugin"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)


def test_folder_that_is_there_is_not_changed(tmp_path):
    new(tmp_path, "tool", "words")
    mine = tmp_path / "projects/deedbook-tool-words/deedbook_tool_words.py"
    mine.write_text("# mine\n")
    assert "exists already" in new(tmp_path, "tool", "words", status=2).err
    assert mine.read_text() == "# mine\n"


def test_link_that_leads_nowhere_is_not_written_through(tmp_path):
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects/deedbook-tool-words").symlink_to(tmp_path / "elsewhere")
    new(tmp_path, "tool", "words", status=2)
    assert not (tmp_path / "elsewhere").exists()


def test_kind_that_is_none_is_refused_with_the_kinds(tmp_path):
    ran = new(tmp_path, "gadget", "words", status=2)
    assert "tool" in ran.err
    assert "provider" in ran.err


def test_misspelt_thing_to_begin_is_suggested(tmp_path):
    assert 'did you mean "plugin"' in Place(tmp_path).here("new", "plugn", "x", status=2).err


# --- the pages --------------------------------------------------------------------------------------------------------


def test_page_shows_what_is_written(made):
    page = PAGES / f"{made.kind}.md"
    shown = {}
    for block in blocks(page):
        path = re.fullmatch(r"# (\S+/\S+)", block.first)
        if path:
            shown[path[1].removeprefix(f"{made.folder.name}/")] = block.text.partition("\n")[2]
    files = made.files()
    assert shown == {path: files[path] for path in shown}
    tests = {path for path in files if path.startswith("tests/")}
    body = next((path for path in files if "/data/" in path), made.module)
    assert shown.keys() >= {*tests, body, "pyproject.toml", "example/.system/deedbook.yaml"}
    assert f"deedbook new plugin {made.name} --kind {made.kind}" in page.read_text(encoding="utf-8")


SIGNATURES = {
    "tool": {"HandlerSpec", "Handler"},
    "provider": {"HandlerSpec", "Handler"},
    "flow": {"HandlerSpec", "Run", "Agent"},
    "hook": {"GateSpec", "Decision"},
    "policy": {"GateSpec", "Gate"},
    "skill": {"GateSpec", "Skills", "Skill"},
    "feature": {"FeatureSpec", "FeatureHooks"},
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pack"])
def test_page_has_the_exact_signature(kind):
    page = PAGES / f"{kind}.md"
    shown = definitions(
        "\n".join(block.text for block in blocks(page) if "class " in block.first or "@" in block.first)
    )
    rooms = (ROOT / f"core/deedbook/contract/{name}.py" for name in ("plugins", "flow", "features"))
    known = definitions("\n".join(room.read_text(encoding="utf-8") for room in rooms))
    assert shown.keys() >= SIGNATURES[kind]
    assert shown == {name: known[name] for name in shown}


def test_index_lists_the_page_of_every_kind():
    listed = re.findall(r"\]\(([a-z]+)\.md\)", (PAGES / "README.md").read_text(encoding="utf-8"))
    assert listed == [*KINDS]
